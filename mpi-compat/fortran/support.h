/* What the generated and the other code of the Fortran library share. It calls the standard ABI of MPI 5.0 alone, so that one library
 * serves every implementation of it. A file that is compiled with PROFILING has the PMPI entries, which call PMPI. */
#ifndef FARSIDE_FORTRAN_SUPPORT_H
#define FARSIDE_FORTRAN_SUPPORT_H

#include <ISO_Fortran_binding.h>
#include <alloca.h>
#include <mpi.h>
#include <stddef.h>
#include <string.h>

#ifdef PROFILING
#define ENTRY(name) p##name
#define CALL(name) P##name
#else
#define ENTRY(name) name
#define CALL(name) name
#endif

/* Handles as integers. A predefined handle is its number in the ABI, in the range of its kind; for others the library knows an integer,
 * which may be small, and where it does not find the handle of its own integer again, this one keeps them. */
enum { FARSIDE_PREDEFINED = 4096 };
#define FARSIDE_HANDLE(name, type, first, end) \
    type farside_##name##_from(int number); \
    int farside_##name##_to(type handle); \
    static inline type name##_from(int number) \
    { \
        return (unsigned)number - first < end - first ? (type)(uintptr_t)number : farside_##name##_from(number); \
    } \
    static inline int name##_to(type handle) \
    { \
        return (uintptr_t)handle < FARSIDE_PREDEFINED ? (int)(uintptr_t)handle : farside_##name##_to(handle); \
    }
#define FARSIDE_HANDLES(each) \
    each(Comm, MPI_Comm, 0x100u, 0x108u) each(Type, MPI_Datatype, 0x200u, 0x400u) each(Errhandler, MPI_Errhandler, 0x140u, 0x180u) \
    each(File, MPI_File, 0x118u, 0x120u) each(Group, MPI_Group, 0x108u, 0x110u) each(Info, MPI_Info, 0x130u, 0x140u) \
    each(Message, MPI_Message, 0x128u, 0x130u) each(Op, MPI_Op, 0x20u, 0x100u) each(Request, MPI_Request, 0x180u, 0x200u) \
    each(Session, MPI_Session, 0x120u, 0x128u) each(Win, MPI_Win, 0x110u, 0x118u)
FARSIDE_HANDLES(FARSIDE_HANDLE)

/* What few calls need, apart from what all of them do. */
#define FARSIDE_COLD static __attribute__((noinline, cold))

/* A function that some libraries of the ABI lack. */
#define FARSIDE_WEAK(name) extern __typeof__(name) CALL(name) __attribute__((weak));

/* The objects of the program whose addresses have a meaning: the COMMON block of mpif.h and of both modules. */
struct farside_fixed {
    int bottom, in_place, buffer_automatic, unweighted, weights_empty, errcodes_ignore;
    int status_ignore[MPI_F_STATUS_SIZE], statuses_ignore[MPI_F_STATUS_SIZE];
};
extern struct farside_fixed mpifort_fixed_;
extern struct {
    char argv_null, argvs_null;
} mpifort_text_;

typedef void farside_callback(void);

/* Number of handles for which an array of a call lies on the stack. */
enum { FARSIDE_FEW = 32 };

/* The address that C gives a buffer. */
void *farside_fixed_address(void *buffer);
static inline void *farside_address(void *buffer)
{
    if ((uintptr_t)buffer - (uintptr_t)&mpifort_fixed_ >= sizeof mpifort_fixed_) return buffer;
    return farside_fixed_address(buffer);
}
static inline int farside_is_in_place(void *buffer) { return buffer == &mpifort_fixed_.in_place; }

static inline MPI_Status *farside_status(MPI_Status *status)
{
    if ((int *)status == mpifort_fixed_.status_ignore) return MPI_STATUS_IGNORE;
    if ((int *)status == mpifort_fixed_.statuses_ignore) return MPI_STATUSES_IGNORE;
    return status;
}
static inline int *farside_weights(const int *weights)
{
    if (weights == &mpifort_fixed_.unweighted) return MPI_UNWEIGHTED;
    if (weights == &mpifort_fixed_.weights_empty) return MPI_WEIGHTS_EMPTY;
    return (int *)weights;
}

/* Strings: blanks at the end of those of Fortran, and before info keys, are not part of them. */
char *farside_string(char *to, const char *text, size_t len);
size_t farside_trimmed(const char *text, size_t len);
void farside_pad(char *text, size_t len, const char *from);
#define FARSIDE_STRING(name, text, len) \
    char *name = farside_string(alloca(farside_trimmed(text, len) + 1), text, farside_trimmed(text, len))

/* Arrays of handles. Without memory the process ends. */
static inline size_t farside_number(MPI_Count number) { return number > 0 ? (size_t)number : 0; }
void *farside_array(void *few, size_t size, size_t number);
void farside_free_array(void *array, void *few);
/* The same array for the rest of the program, once for each content. */
void *farside_kept(void *array, void *few, size_t bytes);
int farside_remote_size(MPI_Comm comm);
int farside_neighbors(MPI_Comm comm, int incoming);

/* A buffer of a descriptor, as C takes it. */
struct farside_section {
    void *base, *copy;
    int count, datatype;
    MPI_Count large;
    MPI_Datatype made;
    int keeps;
};
/* Whether the elements follow each other in memory. */
static inline int farside_is_flat(const CFI_cdesc_t *buffer)
{
    ptrdiff_t next = (ptrdiff_t)buffer->elem_len;
    for (int i = 0; i < buffer->rank; ++i) {
        if (buffer->dim[i].extent == 1) continue;
        if (buffer->dim[i].sm != next && buffer->dim[i].extent != 0) return 0;
        /* The last extent of an assumed-size array is unknown. */
        if (buffer->dim[i].extent <= 0) return 1;
        next *= buffer->dim[i].extent;
    }
    return 1;
}
/* As one element of a datatype: the first `count` elements of `datatype`, if the section were contiguous. */
int farside_block(struct farside_section *section, const CFI_cdesc_t *buffer, MPI_Count count, int datatype);
/* As a contiguous copy, which is written back at the end unless `keeps`. */
int farside_copy(struct farside_section *section, const CFI_cdesc_t *buffer, int keeps);
/* A call that cannot take a section that is not contiguous: MPI_ERR_BUFFER. */
int farside_refuse(struct farside_section *section, const CFI_cdesc_t *buffer);
void farside_section_end(struct farside_section *section, const CFI_cdesc_t *buffer);

#endif
