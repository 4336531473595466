/* Attributes, and functions of the program that the library calls. */
#include "support.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- Values of attributes
 *
 * C sees an attribute that Fortran has set as the address of an integer. These integers are cells of this file, by which it
 * recognizes them when Fortran asks. */

MPI_Aint *farside_cell(MPI_Aint value);
int farside_cell_value(void *at, MPI_Aint *value);
void farside_cell_free(void *at);

#ifndef PROFILING
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct cell {
    MPI_Aint value;
    struct cell *next;
};
static struct cell *cells[1024];

static struct cell **place_of(void *at)
{
    struct cell **place = &cells[((uintptr_t)at >> 5) % 1024];
    while (*place && (void *)*place != at) place = &(*place)->next;
    return place;
}

MPI_Aint *farside_cell(MPI_Aint value)
{
    struct cell *new = malloc(sizeof *new);
    if (!new) return NULL;
    pthread_mutex_lock(&lock);
    struct cell **first = &cells[((uintptr_t)new >> 5) % 1024];
    *new = (struct cell){value, *first};
    *first = new;
    pthread_mutex_unlock(&lock);
    return &new->value;
}

int farside_cell_value(void *at, MPI_Aint *value)
{
    pthread_mutex_lock(&lock);
    struct cell *found = *place_of(at);
    if (found) *value = found->value;
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

void farside_cell_free(void *at)
{
    pthread_mutex_lock(&lock);
    struct cell **place = place_of(at), *found = *place;
    if (found) *place = found->next;
    pthread_mutex_unlock(&lock);
    free(found);
}
#endif

/* The value of an attribute for Fortran. */
static MPI_Aint value_of(int keyval, void *got)
{
    MPI_Aint value;
    switch (keyval) {
    case MPI_TAG_UB:
    case MPI_IO:
    case MPI_HOST:
    case MPI_WTIME_IS_GLOBAL:
    case MPI_APPNUM:
    case MPI_LASTUSEDCODE:
    case MPI_UNIVERSE_SIZE:
    case MPI_WIN_DISP_UNIT:
    case MPI_WIN_CREATE_FLAVOR:
    case MPI_WIN_MODEL:
        return *(int *)got;
    case MPI_WIN_SIZE:
        return *(MPI_Aint *)got;
    default:
        return farside_cell_value(got, &value) ? value : (MPI_Aint)got;
    }
}

#define ATTRIBUTES(lower, Upper, Type, From) \
    void ENTRY(mpi_##lower##_get_attr_)(int *object, int *keyval, MPI_Aint *value, int *flag, int *ierror) \
    { \
        void *got = NULL; \
        int found = 0, error = CALL(MPI_##Upper##_get_attr)(From(*object), *keyval, &got, &found); \
        if (error == MPI_SUCCESS) *flag = found != 0; \
        if (error == MPI_SUCCESS && found) *value = value_of(*keyval, got); \
        if (ierror) *ierror = error; \
    } \
    void ENTRY(mpi_##lower##_set_attr_)(int *object, int *keyval, MPI_Aint *value, int *ierror) \
    { \
        MPI_Aint *cell = farside_cell(*value); \
        int error = cell ? CALL(MPI_##Upper##_set_attr)(From(*object), *keyval, cell) : MPI_ERR_NO_MEM; \
        if (error != MPI_SUCCESS && cell) farside_cell_free(cell); \
        if (ierror) *ierror = error; \
    }
ATTRIBUTES(comm, Comm, MPI_Comm, Comm_from)
ATTRIBUTES(type, Type, MPI_Datatype, Type_from)
ATTRIBUTES(win, Win, MPI_Win, Win_from)

/* With default integers. */
void ENTRY(mpi_attr_get_)(int *comm, int *keyval, int *value, int *flag, int *ierror)
{
    MPI_Aint got = 0;
    ENTRY(mpi_comm_get_attr_)(comm, keyval, &got, flag, ierror);
    if (*flag) *value = (int)got;
}
void ENTRY(mpi_attr_put_)(int *comm, int *keyval, int *value, int *ierror)
{
    MPI_Aint wide = *value;
    ENTRY(mpi_comm_set_attr_)(comm, keyval, &wide, ierror);
}

/* ---- Functions of attributes */

typedef void copy_function(int *object, int *keyval, void *extra_state, void *in, void *out, int *flag, int *ierror);
typedef void delete_function(int *object, int *keyval, void *value, void *extra_state, int *ierror);

struct keyval {
    copy_function *copy;
    delete_function *remove;
    MPI_Aint extra_state;
    /* Whether the functions take default integers. */
    int is_old;
};

static int call_copy(const struct keyval *of, int object, int keyval, void *in, void *out, int *flag)
{
    MPI_Aint wide_in = value_of(MPI_KEYVAL_INVALID, in), wide_out = 0, extra = of->extra_state;
    int error = MPI_SUCCESS, copied = 0, few_in = (int)wide_in, few_out = 0, few_extra = (int)extra;
    if (of->is_old) {
        of->copy(&object, &keyval, &few_extra, &few_in, &few_out, &copied, &error);
        wide_out = few_out;
    } else {
        of->copy(&object, &keyval, &extra, &wide_in, &wide_out, &copied, &error);
    }
    *flag = copied != 0;
    if (error != MPI_SUCCESS || !copied) return error;
    *(void **)out = farside_cell(wide_out);
    return *(void **)out ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

static int call_delete(const struct keyval *of, int object, int keyval, void *value)
{
    MPI_Aint wide = value_of(MPI_KEYVAL_INVALID, value), extra = of->extra_state;
    int error = MPI_SUCCESS, few = (int)wide, few_extra = (int)extra;
    if (of->is_old)
        of->remove(&object, &keyval, &few, &few_extra, &error);
    else
        of->remove(&object, &keyval, &wide, &extra, &error);
    if (error == MPI_SUCCESS) farside_cell_free(value);
    return error;
}

#define KEYVAL(lower, Upper, Type, To) \
    static int copy_##lower(Type object, int keyval, void *extra_state, void *in, void *out, int *flag) \
    { \
        return call_copy(extra_state, To(object), keyval, in, out, flag); \
    } \
    static int delete_##lower(Type object, int keyval, void *value, void *extra_state) \
    { \
        return call_delete(extra_state, To(object), keyval, value); \
    } \
    static int create_##lower(farside_callback *copy, farside_callback *remove, int *keyval, MPI_Aint extra, int is_old) \
    { \
        /* Attributes may outlast their key, so what it refers to stays. */ \
        struct keyval *made = malloc(sizeof *made); \
        if (!made) return MPI_ERR_NO_MEM; \
        *made = (struct keyval){(copy_function *)copy, (delete_function *)remove, extra, is_old}; \
        return CALL(MPI_##Upper##_create_keyval)(copy_##lower, delete_##lower, keyval, made); \
    } \
    void ENTRY(mpi_##lower##_create_keyval_)(farside_callback *copy, farside_callback *remove, int *keyval, MPI_Aint *extra_state, \
        int *ierror) \
    { \
        int error = create_##lower(copy, remove, keyval, *extra_state, 0); \
        if (ierror) *ierror = error; \
    }
KEYVAL(comm, Comm, MPI_Comm, Comm_to)
KEYVAL(type, Type, MPI_Datatype, Type_to)
KEYVAL(win, Win, MPI_Win, Win_to)

void ENTRY(mpi_keyval_create_)(farside_callback *copy, farside_callback *remove, int *keyval, int *extra_state, int *ierror)
{
    int error = create_comm(copy, remove, keyval, *extra_state, 1);
    if (ierror) *ierror = error;
}

#ifndef PROFILING
#define FIXED(lower, Integer) \
    void lower##null_copy_fn_(int *object, int *keyval, void *extra_state, Integer *in, Integer *out, int *flag, int *ierror) \
    { \
        (void)object, (void)keyval, (void)extra_state, (void)in, (void)out; \
        *flag = 0; \
        *ierror = MPI_SUCCESS; \
    } \
    void lower##dup_fn_(int *object, int *keyval, void *extra_state, Integer *in, Integer *out, int *flag, int *ierror) \
    { \
        (void)object, (void)keyval, (void)extra_state; \
        *out = *in; \
        *flag = 1; \
        *ierror = MPI_SUCCESS; \
    } \
    void lower##null_delete_fn_(int *object, int *keyval, void *value, void *extra_state, int *ierror) \
    { \
        (void)object, (void)keyval, (void)value, (void)extra_state; \
        *ierror = MPI_SUCCESS; \
    }
FIXED(mpi_, int)
FIXED(mpi_comm_, MPI_Aint)
FIXED(mpi_type_, MPI_Aint)
FIXED(mpi_win_, MPI_Aint)
#endif

/* ---- Operators and error handlers
 *
 * C calls them without a value of the program, so each function of Fortran needs a C function of its own. The same function of the
 * program gets the same C function again. */

enum { SLOTS = 256 };
enum use { OPERATOR, OPERATOR_LARGE, ON_COMM, ON_WIN, ON_FILE, ON_SESSION };
struct slot {
    farside_callback *function;
    enum use use;
};
typedef void operator_function(void *in, void *inout, void *len, int *datatype);
typedef void error_function(int *object, int *error);

int farside_slot(farside_callback *function, enum use use);
extern MPI_User_function *const farside_operators[SLOTS];
extern MPI_Comm_errhandler_function *const farside_handlers[SLOTS];

#ifndef PROFILING
static struct slot slots[SLOTS];

int farside_slot(farside_callback *function, enum use use)
{
    int found = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SLOTS && found < 0; ++i) {
        if (!slots[i].function) slots[i] = (struct slot){function, use};
        if (slots[i].function == function && slots[i].use == use) found = i;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void operate(int slot, void *in, void *inout, void *len, MPI_Datatype *datatype)
{
    int handle = Type_to(*datatype);
    ((operator_function *)slots[slot].function)(in, inout, len, &handle);
}

static void handle(int slot, void *object, int *error)
{
    int number = 0;
    switch (slots[slot].use) {
    case ON_COMM: number = Comm_to(*(MPI_Comm *)object); break;
    case ON_WIN: number = Win_to(*(MPI_Win *)object); break;
    case ON_FILE: number = File_to(*(MPI_File *)object); break;
    default: number = Session_to(*(MPI_Session *)object); break;
    }
    ((error_function *)slots[slot].function)(&number, error);
}

#define FOUR(what, n) what(n##0) what(n##1) what(n##2) what(n##3)
#define SIXTEEN(what, n) FOUR(what, n##0) FOUR(what, n##1) FOUR(what, n##2) FOUR(what, n##3)
#define SIXTY_FOUR(what, n) SIXTEEN(what, n##0) SIXTEEN(what, n##1) SIXTEEN(what, n##2) SIXTEEN(what, n##3)
#define ALL(what) SIXTY_FOUR(what, 0) SIXTY_FOUR(what, 1) SIXTY_FOUR(what, 2) SIXTY_FOUR(what, 3)
/* A name of four digits to the base of four, as a number. */
#define NUMBER(n) (((#n[0] - '0') * 4 + #n[1] - '0') * 16 + (#n[2] - '0') * 4 + #n[3] - '0')
#define OPERATOR_OF(n) \
    static void operator_##n(void *in, void *inout, int *len, MPI_Datatype *datatype) \
    { \
        operate(NUMBER(n), in, inout, len, datatype); \
    }
#define HANDLER_OF(n) \
    static void handler_##n(MPI_Comm *object, int *error, ...) { handle(NUMBER(n), object, error); }
#define OPERATOR_NAME(n) operator_##n,
#define HANDLER_NAME(n) handler_##n,
ALL(OPERATOR_OF)
ALL(HANDLER_OF)
MPI_User_function *const farside_operators[SLOTS] = {ALL(OPERATOR_NAME)};
MPI_Comm_errhandler_function *const farside_handlers[SLOTS] = {ALL(HANDLER_NAME)};
#endif

/* More functions than slots. */
static int no_slot(void)
{
    CALL(MPI_Comm_call_errhandler)(MPI_COMM_SELF, MPI_ERR_INTERN);
    return MPI_ERR_INTERN;
}

void ENTRY(mpi_op_create_)(farside_callback *function, int *commute, int *op, int *ierror)
{
    MPI_Op made = MPI_OP_NULL;
    int slot = farside_slot(function, OPERATOR);
    int error = slot < 0 ? no_slot() : CALL(MPI_Op_create)(farside_operators[slot], *commute != 0, &made);
    if (error == MPI_SUCCESS) *op = Op_to(made);
    if (ierror) *ierror = error;
}

void ENTRY(mpi_op_create_c_)(farside_callback *function, int *commute, int *op, int *ierror)
{
    MPI_Op made = MPI_OP_NULL;
    int slot = farside_slot(function, OPERATOR_LARGE);
    int error = slot < 0 ? no_slot() : CALL(MPI_Op_create_c)((MPI_User_function_c *)farside_operators[slot], *commute != 0, &made);
    if (error == MPI_SUCCESS) *op = Op_to(made);
    if (ierror) *ierror = error;
}

#define HANDLERS(lower, Upper, use) \
    void ENTRY(mpi_##lower##_create_errhandler_)(farside_callback *function, int *errhandler, int *ierror) \
    { \
        MPI_Errhandler made = MPI_ERRHANDLER_NULL; \
        int slot = farside_slot(function, use); \
        int error = slot < 0 ? no_slot() \
                             : CALL(MPI_##Upper##_create_errhandler)((MPI_##Upper##_errhandler_function *)farside_handlers[slot], &made); \
        if (error == MPI_SUCCESS) *errhandler = Errhandler_to(made); \
        if (ierror) *ierror = error; \
    }
HANDLERS(comm, Comm, ON_COMM)
HANDLERS(win, Win, ON_WIN)
HANDLERS(file, File, ON_FILE)
HANDLERS(session, Session, ON_SESSION)

void ENTRY(mpi_errhandler_create_)(farside_callback *function, int *errhandler, int *ierror)
{
    ENTRY(mpi_comm_create_errhandler_)(function, errhandler, ierror);
}

/* ---- Generalized requests */

typedef void query_function(MPI_Aint *extra_state, MPI_Status *status, int *ierror);
typedef void free_function(MPI_Aint *extra_state, int *ierror);
typedef void cancel_function(MPI_Aint *extra_state, int *complete, int *ierror);

struct request {
    query_function *query;
    free_function *free;
    cancel_function *cancel;
    MPI_Aint extra_state;
};

static int request_query(void *state, MPI_Status *status)
{
    struct request *of = state;
    int error = MPI_SUCCESS;
    of->query(&of->extra_state, status, &error);
    return error;
}
static int request_free(void *state)
{
    struct request *of = state;
    int error = MPI_SUCCESS;
    of->free(&of->extra_state, &error);
    free(of);
    return error;
}
static int request_cancel(void *state, int complete)
{
    struct request *of = state;
    int error = MPI_SUCCESS, is_complete = complete != 0;
    of->cancel(&of->extra_state, &is_complete, &error);
    return error;
}

void ENTRY(mpi_grequest_start_)(farside_callback *query, farside_callback *release, farside_callback *cancel, MPI_Aint *extra_state,
    int *request, int *ierror)
{
    struct request *made = malloc(sizeof *made);
    MPI_Request started = MPI_REQUEST_NULL;
    int error = MPI_ERR_NO_MEM;
    if (made) {
        *made = (struct request){(query_function *)query, (free_function *)release, (cancel_function *)cancel, *extra_state};
        error = CALL(MPI_Grequest_start)(request_query, request_free, request_cancel, made, &started);
    }
    if (error == MPI_SUCCESS)
        *request = Request_to(started);
    else
        free(made);
    if (ierror) *ierror = error;
}

/* ---- Data representations of files, which stay for the rest of the program */

typedef void conversion_function(void *user, int *datatype, void *count, void *file, MPI_Offset *position, MPI_Aint *extra_state,
    int *ierror);
typedef void extent_function(int *datatype, MPI_Aint *extent, MPI_Aint *extra_state, int *ierror);

struct datarep {
    conversion_function *read, *write;
    extent_function *extent;
    MPI_Aint extra_state;
};

static int datarep_extent(MPI_Datatype datatype, MPI_Aint *extent, void *state)
{
    struct datarep *of = state;
    int error = MPI_SUCCESS, handle = Type_to(datatype);
    of->extent(&handle, extent, &of->extra_state, &error);
    return error;
}
#define CONVERSION(way, suffix, Count) \
    static int datarep_##way##suffix(void *user, MPI_Datatype datatype, Count count, void *file, MPI_Offset position, void *state) \
    { \
        struct datarep *of = state; \
        int error = MPI_SUCCESS, handle = Type_to(datatype); \
        of->way(user, &handle, &count, file, &position, &of->extra_state, &error); \
        return error; \
    }
CONVERSION(read, , int)
CONVERSION(write, , int)
CONVERSION(read, _large, MPI_Count)
CONVERSION(write, _large, MPI_Count)

/* Stand for no conversion; they are never called. */
void mpi_conversion_fn_null_(void);
void mpi_conversion_fn_null_c_(void);
#ifndef PROFILING
void mpi_conversion_fn_null_(void) {}
void mpi_conversion_fn_null_c_(void) {}
#endif

#define REGISTER(suffix, Suffix, large, null, none) \
    void ENTRY(mpi_register_datarep##suffix##_)(char *datarep, farside_callback *read, farside_callback *write, \
        farside_callback *extent, MPI_Aint *extra_state, int *ierror, size_t len) \
    { \
        FARSIDE_STRING(name, datarep, len); \
        struct datarep *made = malloc(sizeof *made); \
        int error = MPI_ERR_NO_MEM; \
        if (made) { \
            *made = (struct datarep){(conversion_function *)read, (conversion_function *)write, (extent_function *)extent, \
                *extra_state}; \
            error = CALL(MPI_Register_datarep##suffix)(name, read == null ? none : datarep_read##large, \
                write == null ? none : datarep_write##large, datarep_extent, made); \
        } \
        if (error != MPI_SUCCESS) free(made); \
        if (ierror) *ierror = error; \
    }
REGISTER(, , , mpi_conversion_fn_null_, MPI_CONVERSION_FN_NULL)
REGISTER(_c, _c, _large, mpi_conversion_fn_null_c_, MPI_CONVERSION_FN_NULL_C)
