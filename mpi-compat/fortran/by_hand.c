/* Functions whose arguments need more than a rule for each. */
#include "support.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- Start */

#ifndef PROFILING
/* Says to the library what gfortran's types are, unless it knows. It may be asked for this only after its start. */
void farside_describe(void)
{
    static const char *const sizes[][2] = {
        {"mpi_logical_size", "4"}, {"mpi_integer_size", "4"}, {"mpi_real_size", "4"}, {"mpi_double_precision_size", "8"}};
    static const char *const there[] = {"logical1", "logical2", "logical4", "logical8", "integer1", "integer2", "integer4",
        "integer8", "real4", "real8", "complex8", "complex16", "double_complex"};
    MPI_Info info = MPI_INFO_NULL;
    if (MPI_Abi_get_fortran_info(&info) != MPI_SUCCESS) return;
    if (info != MPI_INFO_NULL) {
        MPI_Info_free(&info);
        return;
    }
    if (MPI_Info_create(&info) != MPI_SUCCESS) return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) MPI_Info_set(info, sizes[i][0], sizes[i][1]);
    for (size_t i = 0; i < sizeof there / sizeof *there; ++i) {
        char key[64] = "mpi_";
        MPI_Info_set(info, strcat(strcat(key, there[i]), "_supported"), "true");
    }
    int yes = 1, no = 0;
    MPI_Abi_set_fortran_info(info);
    MPI_Abi_set_fortran_booleans(sizeof yes, &yes, &no);
    MPI_Info_free(&info);
}
#endif
void farside_describe(void);

void ENTRY(mpi_init_)(int *ierror)
{
    int error = CALL(MPI_Init)(NULL, NULL);
    if (error == MPI_SUCCESS) farside_describe();
    if (ierror) *ierror = error;
}

void ENTRY(mpi_init_thread_)(int *required, int *provided, int *ierror)
{
    int error = CALL(MPI_Init_thread)(NULL, NULL, *required, provided);
    if (error == MPI_SUCCESS) farside_describe();
    if (ierror) *ierror = error;
}

void ENTRY(mpi_session_init_)(int *info, int *errhandler, int *session, int *ierror)
{
    MPI_Session made = MPI_SESSION_NULL;
    int error = CALL(MPI_Session_init)(Info_from(*info), Errhandler_from(*errhandler), &made);
    if (error == MPI_SUCCESS) farside_describe();
    if (error == MPI_SUCCESS) *session = Session_to(made);
    if (ierror) *ierror = error;
}

void ENTRY(mpi_pcontrol_)(int *level, int *ierror)
{
    int error = CALL(MPI_Pcontrol)(*level);
    if (ierror) *ierror = error;
}

/* ---- Strings whose lengths are arguments: in C they count the final zero */

void ENTRY(mpi_info_get_)(int *info, char *key, int *valuelen, char *value, int *flag, int *ierror, size_t key_len, size_t value_len)
{
    int most = *valuelen < 0 ? 0 : *valuelen, found = 0;
    char *got = alloca((size_t)most + 1);
    FARSIDE_STRING(name, key, key_len);
    while (*name == ' ') ++name;
    *got = '\0';
    int error = CALL(MPI_Info_get)(Info_from(*info), name, *valuelen, got, &found);
    if (error == MPI_SUCCESS && found) farside_pad(value, value_len, got);
    if (error == MPI_SUCCESS) *flag = found != 0;
    if (ierror) *ierror = error;
}

void ENTRY(mpi_info_get_string_)(int *info, char *key, int *buflen, char *value, int *flag, int *ierror, size_t key_len, size_t value_len)
{
    int most = *buflen > 0 ? *buflen + 1 : 0, len = most, found = 0;
    char *got = alloca((size_t)most + 1);
    FARSIDE_STRING(name, key, key_len);
    while (*name == ' ') ++name;
    *got = '\0';
    int error = CALL(MPI_Info_get_string)(Info_from(*info), name, &len, got, &found);
    if (error == MPI_SUCCESS) {
        if (found && most > 0) farside_pad(value, value_len, got);
        if (found) *buflen = len > 0 ? len - 1 : 0;
        *flag = found != 0;
    }
    if (ierror) *ierror = error;
}

void ENTRY(mpi_session_get_nth_pset_)(int *session, int *info, int *n, int *pset_len, char *pset_name, int *ierror, size_t pset_name_len)
{
    int most = *pset_len > 0 ? *pset_len + 1 : 0, len = most;
    char *got = alloca((size_t)most + 1);
    *got = '\0';
    int error = CALL(MPI_Session_get_nth_pset)(Session_from(*session), Info_from(*info), *n, &len, got);
    if (error == MPI_SUCCESS) {
        if (most > 0) farside_pad(pset_name, pset_name_len, got);
        *pset_len = len > 0 ? len - 1 : 0;
    }
    if (ierror) *ierror = error;
}

/* ---- Detached buffers: mpi_f08 returns their address, the other interfaces take a buffer that they do not change */

#define DETACH(name, function, size_type, before, ...) \
    void ENTRY(name##f08_)(before void **buffer, size_type *size, int *ierror) \
    { \
        void *detached = NULL; \
        int error = CALL(function)(__VA_ARGS__ &detached, size); \
        if (error == MPI_SUCCESS) *buffer = detached; \
        if (ierror) *ierror = error; \
    } \
    void ENTRY(name)(before void *buffer, size_type *size, int *ierror) \
    { \
        (void)buffer; \
        void *detached; \
        int error = CALL(function)(__VA_ARGS__ &detached, size); \
        if (ierror) *ierror = error; \
    }
#define OF(type) int *type,
DETACH(mpi_buffer_detach_, MPI_Buffer_detach, int, , )
DETACH(mpi_buffer_detach_c_, MPI_Buffer_detach_c, MPI_Count, , )
DETACH(mpi_comm_detach_buffer_, MPI_Comm_detach_buffer, int, OF(comm), Comm_from(*comm), )
DETACH(mpi_comm_detach_buffer_c_, MPI_Comm_detach_buffer_c, MPI_Count, OF(comm), Comm_from(*comm), )
DETACH(mpi_session_detach_buffer_, MPI_Session_detach_buffer, int, OF(session), Session_from(*session), )
DETACH(mpi_session_detach_buffer_c_, MPI_Session_detach_buffer_c, MPI_Count, OF(session), Session_from(*session), )

/* ---- Starting programs: an argument list ends with a blank string */

static char **list(const char *strings, size_t len, size_t step, size_t most)
{
    size_t number = 0;
    while (number < most && farside_trimmed(strings + number * step, len) > 0) ++number;
    char **made = calloc(number + 1, sizeof *made);
    for (size_t i = 0; made && i < number; ++i) {
        size_t own = farside_trimmed(strings + i * step, len);
        made[i] = malloc(own + 1);
        if (made[i]) farside_string(made[i], strings + i * step, own);
    }
    return made;
}

static void free_list(char **made)
{
    for (char **one = made; one && *one; ++one) free(*one);
    free(made);
}

void ENTRY(mpi_comm_spawn_)(char *command, char *argv, int *maxprocs, int *info, int *root, int *comm, int *intercomm,
    int *array_of_errcodes, int *ierror, size_t command_len, size_t argv_len)
{
    FARSIDE_STRING(name, command, command_len);
    char **arguments = argv == &mpifort_text_.argv_null ? NULL : list(argv, argv_len, argv_len, SIZE_MAX);
    int *codes = array_of_errcodes == &mpifort_fixed_.errcodes_ignore ? MPI_ERRCODES_IGNORE : array_of_errcodes;
    MPI_Comm made = MPI_COMM_NULL;
    int error = CALL(MPI_Comm_spawn)(name, arguments ? arguments : MPI_ARGV_NULL, *maxprocs, Info_from(*info), *root,
        Comm_from(*comm), &made, codes);
    free_list(arguments);
    if (error == MPI_SUCCESS) *intercomm = Comm_to(made);
    if (ierror) *ierror = error;
}

void ENTRY(mpi_comm_spawn_multiple_)(int *count, char *array_of_commands, char *array_of_argv, int *array_of_maxprocs,
    int *array_of_info, int *root, int *comm, int *intercomm, int *array_of_errcodes, int *ierror, size_t commands_len,
    size_t argv_len)
{
    size_t number = farside_number(*count);
    char **commands = calloc(number + 1, sizeof *commands);
    char ***arguments = array_of_argv == &mpifort_text_.argvs_null ? NULL : calloc(number + 1, sizeof *arguments);
    MPI_Info *infos = calloc(number + 1, sizeof *infos);
    for (size_t i = 0; i < number && commands && infos; ++i) {
        size_t own = farside_trimmed(array_of_commands + i * commands_len, commands_len);
        commands[i] = malloc(own + 1);
        if (commands[i]) farside_string(commands[i], array_of_commands + i * commands_len, own);
        infos[i] = Info_from(array_of_info[i]);
        /* The strings of one command lie in a row of a matrix, whose columns are long as the number of commands. */
        if (arguments) arguments[i] = list(array_of_argv + i * argv_len, argv_len, number * argv_len, SIZE_MAX);
    }
    int *codes = array_of_errcodes == &mpifort_fixed_.errcodes_ignore ? MPI_ERRCODES_IGNORE : array_of_errcodes;
    MPI_Comm made = MPI_COMM_NULL;
    int error = commands && infos ? CALL(MPI_Comm_spawn_multiple)(*count, commands, arguments ? arguments : MPI_ARGVS_NULL,
                                        array_of_maxprocs, infos, *root, Comm_from(*comm), &made, codes)
                                  : MPI_ERR_NO_MEM;
    for (size_t i = 0; i < number && arguments; ++i) free_list(arguments[i]);
    free(arguments);
    free_list(commands);
    free(infos);
    if (error == MPI_SUCCESS) *intercomm = Comm_to(made);
    if (ierror) *ierror = error;
}

/* ---- What C has no function for */

void ENTRY(mpi_sizeof_f08ts_)(const CFI_cdesc_t *x, int *size, int *ierror)
{
    *size = (int)x->elem_len;
    if (ierror) *ierror = MPI_SUCCESS;
}

void ENTRY(mpi_f_sync_reg_)(void *buffer) { (void)buffer; }
void ENTRY(mpi_f_sync_reg_f08ts_)(CFI_cdesc_t *buffer) { (void)buffer; }

/* A status is the same to C and in all forms of Fortran. */
void ENTRY(mpi_status_f2f08_)(const MPI_Status *from, MPI_Status *to, int *ierror)
{
    *to = *from;
    if (ierror) *ierror = MPI_SUCCESS;
}
void ENTRY(mpi_status_f082f_)(const MPI_Status *from, MPI_Status *to, int *ierror)
{
    *to = *from;
    if (ierror) *ierror = MPI_SUCCESS;
}

/* Of MPI-1, with default integers. */
void ENTRY(mpi_address_)(void *location, int *address, int *ierror)
{
    MPI_Aint at = 0;
    int error = CALL(MPI_Get_address)(farside_address(location), &at);
    *address = (int)at;
    if (*address != at && error == MPI_SUCCESS) error = MPI_ERR_VALUE_TOO_LARGE;
    if (ierror) *ierror = error;
}
void ENTRY(mpi_type_extent_)(int *datatype, int *extent, int *ierror)
{
    MPI_Aint lb = 0, size = 0;
    int error = CALL(MPI_Type_get_extent)(Type_from(*datatype), &lb, &size);
    *extent = (int)size;
    if (*extent != size && error == MPI_SUCCESS) error = MPI_ERR_VALUE_TOO_LARGE;
    if (ierror) *ierror = error;
}
