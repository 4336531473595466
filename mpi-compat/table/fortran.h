/* Handles and statuses of Fortran, for C programs that exchange them with it. The ABI leaves them to the Fortran library, whose integers
 * are those of MPI_*_toint and whose statuses are those of C. */
typedef int MPI_Fint;
#define MPI_Comm_c2f MPI_Comm_toint
#define MPI_Comm_f2c MPI_Comm_fromint
#define MPI_Errhandler_c2f MPI_Errhandler_toint
#define MPI_Errhandler_f2c MPI_Errhandler_fromint
#define MPI_File_c2f MPI_File_toint
#define MPI_File_f2c MPI_File_fromint
#define MPI_Group_c2f MPI_Group_toint
#define MPI_Group_f2c MPI_Group_fromint
#define MPI_Info_c2f MPI_Info_toint
#define MPI_Info_f2c MPI_Info_fromint
#define MPI_Message_c2f MPI_Message_toint
#define MPI_Message_f2c MPI_Message_fromint
#define MPI_Op_c2f MPI_Op_toint
#define MPI_Op_f2c MPI_Op_fromint
#define MPI_Request_c2f MPI_Request_toint
#define MPI_Request_f2c MPI_Request_fromint
#define MPI_Session_c2f MPI_Session_toint
#define MPI_Session_f2c MPI_Session_fromint
#define MPI_Type_c2f MPI_Type_toint
#define MPI_Type_f2c MPI_Type_fromint
#define MPI_Win_c2f MPI_Win_toint
#define MPI_Win_f2c MPI_Win_fromint
typedef MPI_Status MPI_F08_status;
static inline int MPI_Status_c2f(const MPI_Status *status, MPI_Fint *to)
{
    const int *from = (const int *)status;
    for (int i = 0; i < MPI_F_STATUS_SIZE; ++i) to[i] = from[i];
    return MPI_SUCCESS;
}
static inline int MPI_Status_f2c(const MPI_Fint *from, MPI_Status *status)
{
    int *to = (int *)status;
    for (int i = 0; i < MPI_F_STATUS_SIZE; ++i) to[i] = from[i];
    return MPI_SUCCESS;
}
static inline int MPI_Status_c2f08(const MPI_Status *from, MPI_F08_status *to) { return *to = *from, MPI_SUCCESS; }
static inline int MPI_Status_f082c(const MPI_F08_status *from, MPI_Status *to) { return *to = *from, MPI_SUCCESS; }
static inline int MPI_Status_f2f08(const MPI_Fint *from, MPI_F08_status *to) { return MPI_Status_f2c(from, to); }
static inline int MPI_Status_f082f(const MPI_F08_status *from, MPI_Fint *to) { return MPI_Status_c2f(from, to); }
#ifdef __GNUC__
/* The addresses that a Fortran program names so, where it has its library. */
extern MPI_Fint farside_mpifort_fixed[] __asm__("mpifort_fixed_") __attribute__((weak));
#define MPI_F_STATUS_IGNORE (farside_mpifort_fixed ? farside_mpifort_fixed + 6 : (MPI_Fint *)0)
#define MPI_F_STATUSES_IGNORE (farside_mpifort_fixed ? farside_mpifort_fixed + 6 + MPI_F_STATUS_SIZE : (MPI_Fint *)0)
#define MPI_F08_STATUS_IGNORE ((MPI_F08_status *)MPI_F_STATUS_IGNORE)
#define MPI_F08_STATUSES_IGNORE ((MPI_F08_status *)MPI_F_STATUSES_IGNORE)
#endif
