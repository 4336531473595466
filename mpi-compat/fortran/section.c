/* Array sections that are not contiguous. */
#include "support.h"

#include <stdlib.h>

/* Whether all of a datatype is its elements in their order, without gaps. */
static int is_dense(MPI_Datatype datatype)
{
    int integers, addresses, datatypes, combiner;
    if (MPI_Type_get_envelope(datatype, &integers, &addresses, &datatypes, &combiner) != MPI_SUCCESS) return 0;
    MPI_Count size, lb, extent;
    if (MPI_Type_size_c(datatype, &size) || MPI_Type_get_extent_c(datatype, &lb, &extent)) return 0;
    if (lb != 0 || size != extent) return 0;
    switch (combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER:
        return 1;
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_CONTIGUOUS: {
        int number;
        MPI_Aint address;
        MPI_Datatype inner;
        if (MPI_Type_get_contents(datatype, 1, 0, 1, &number, &address, &inner)) return 0;
        int dense = is_dense(inner);
        if (MPI_Type_get_envelope(inner, &integers, &addresses, &datatypes, &combiner) == MPI_SUCCESS &&
            combiner != MPI_COMBINER_NAMED)
            MPI_Type_free(&inner);
        return dense;
    }
    default:
        return 0;
    }
}

/* The first `number` elements of the first `dims` dimensions; `element` if there are no dimensions. */
static int shape(const CFI_cdesc_t *buffer, int dims, MPI_Count number, MPI_Datatype element, MPI_Datatype *made)
{
    if (dims == 0) return MPI_Type_dup(element, made);
    MPI_Count each = 1, stride = buffer->dim[dims - 1].sm;
    for (int i = 0; i < dims - 1; ++i) each *= buffer->dim[i].extent;
    MPI_Count full = number / each, rest = number % each;
    MPI_Datatype part[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
    MPI_Datatype inner = MPI_DATATYPE_NULL;
    int error = shape(buffer, dims - 1, each, element, &inner);
    if (!error) error = MPI_Type_create_hvector_c(full, 1, stride, inner, &part[0]);
    if (!error && rest > 0) error = shape(buffer, dims - 1, rest, element, &part[1]);
    if (inner != MPI_DATATYPE_NULL) MPI_Type_free(&inner);
    if (!error && rest == 0) {
        *made = part[0];
        return MPI_SUCCESS;
    }
    if (!error) {
        MPI_Count ones[2] = {1, 1}, places[2] = {0, full * stride};
        error = MPI_Type_create_struct_c(2, ones, places, part, made);
    }
    for (int i = 0; i < 2; ++i)
        if (part[i] != MPI_DATATYPE_NULL) MPI_Type_free(&part[i]);
    return error;
}

static MPI_Count elements(const CFI_cdesc_t *buffer)
{
    MPI_Count all = 1;
    for (int i = 0; i < buffer->rank; ++i) all *= buffer->dim[i].extent;
    return all;
}

int farside_block(struct farside_section *section, const CFI_cdesc_t *buffer, MPI_Count count, int datatype)
{
    section->base = buffer->base_addr;
    section->large = count;
    section->count = (int)count;
    section->datatype = datatype;
    section->made = MPI_DATATYPE_NULL;
    if (farside_is_flat(buffer) || count <= 0) return MPI_SUCCESS;
    MPI_Datatype own = Type_from(datatype);
    MPI_Count size, len = (MPI_Count)buffer->elem_len;
    int error = MPI_Type_size_c(own, &size);
    if (error) return error;
    if (size <= 0 || len <= 0 || !is_dense(own)) return MPI_ERR_TYPE;
    MPI_Count number = count * size / len;
    if (count * size % len != 0 || number > elements(buffer)) return MPI_ERR_COUNT;
    MPI_Datatype element = MPI_DATATYPE_NULL;
    if (len % size == 0) {
        error = MPI_Type_contiguous_c(len / size, own, &element);
    } else if (size % len == 0) {
        /* An element of the program's datatype is several of the array: their bytes, which keep their order. */
        error = MPI_Type_contiguous_c(len, MPI_BYTE, &element);
    } else {
        return MPI_ERR_TYPE;
    }
    if (!error) error = shape(buffer, buffer->rank, number, element, &section->made);
    if (element != MPI_DATATYPE_NULL) MPI_Type_free(&element);
    if (!error) error = MPI_Type_commit(&section->made);
    if (error) return error;
    section->large = section->count = 1;
    section->datatype = Type_to(section->made);
    return MPI_SUCCESS;
}

/* Copies all elements of a section to contiguous memory, or back. */
static void transfer(const CFI_cdesc_t *buffer, char *at, int dims, char **copy, int back)
{
    if (dims == 0) {
        back ? memcpy(at, *copy, buffer->elem_len) : memcpy(*copy, at, buffer->elem_len);
        *copy += buffer->elem_len;
        return;
    }
    for (CFI_index_t i = 0; i < buffer->dim[dims - 1].extent; ++i)
        transfer(buffer, at + i * buffer->dim[dims - 1].sm, dims - 1, copy, back);
}

int farside_copy(struct farside_section *section, const CFI_cdesc_t *buffer, int keeps)
{
    section->base = buffer->base_addr;
    section->keeps = keeps;
    section->made = MPI_DATATYPE_NULL;
    if (farside_is_flat(buffer)) return MPI_SUCCESS;
    char *to = section->copy = section->base = malloc((size_t)elements(buffer) * buffer->elem_len + 1);
    if (!to) return MPI_ERR_NO_MEM;
    transfer(buffer, buffer->base_addr, buffer->rank, &to, 0);
    return MPI_SUCCESS;
}

int farside_refuse(struct farside_section *section, const CFI_cdesc_t *buffer)
{
    section->base = buffer->base_addr;
    section->made = MPI_DATATYPE_NULL;
    return farside_is_flat(buffer) ? MPI_SUCCESS : MPI_ERR_BUFFER;
}

void farside_section_end(struct farside_section *section, const CFI_cdesc_t *buffer)
{
    /* A section that an error left out has no datatype. */
    if (section->made && section->made != MPI_DATATYPE_NULL) MPI_Type_free(&section->made);
    if (!section->copy) return;
    char *from = section->copy;
    if (!section->keeps) transfer(buffer, buffer->base_addr, buffer->rank, &from, 1);
    free(section->copy);
}
