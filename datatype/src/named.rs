//! Predefined datatypes (MPI-4.1 §3.2.2, §5.1, §6.9.4): sizes as defined by C and Fortran compilers for 64-bit Linux.

use crate::signature::Signature;

/// Representation of a value in the bytes of an element; decides its external32 form (MPI-4.1 §14.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Two's complement.
    Signed,
    /// Unsigned binary, including logical values and characters.
    Unsigned,
    /// IEEE 754 of 2, 4 or 8 bytes.
    Float,
    /// The C compiler's `long double`, whose format depends on the processor.
    LongDouble,
    /// Bytes that are never converted.
    Opaque,
    /// Two elements, as a C struct holds them.
    Pair,
}

macro_rules! named {
    (
        basic { $($name:ident = $mpi:literal, $units:literal x $unit:literal, $class:ident, external $ext:literal;)* }
        pair { $($pair:ident = $pmpi:literal, $first:ident, $second:ident;)* }
    ) => {
        /// A predefined datatype.
        ///
        /// ```
        /// use farside_datatype::{Class, Named};
        ///
        /// assert_eq!((Named::Double.mpi_name(), Named::Double.size()), ("MPI_DOUBLE", 8));
        /// assert_eq!(Named::Double.class(), Class::Float);
        /// assert_eq!((Named::DoubleInt.size(), Named::DoubleInt.extent()), (12, 16));
        /// assert_eq!(Named::DoubleInt.pair(), Some((Named::Double, Named::Int)));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // each is the MPI type of `mpi_name`
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Named { $($name,)* $($pair,)* }

        impl Named {
            /// Every predefined type.
            pub const ALL: &'static [Named] = &[$(Named::$name,)* $(Named::$pair,)*];

            /// Its name in MPI.
            #[must_use]
            pub const fn mpi_name(self) -> &'static str {
                match self { $(Named::$name => $mpi,)* $(Named::$pair => $pmpi,)* }
            }

            /// The two elements of a pair type (value, index).
            #[must_use]
            pub const fn pair(self) -> Option<(Named, Named)> {
                match self { $(Named::$pair => Some((Named::$first, Named::$second)),)* _ => None }
            }

            /// Number of scalars in an element (2 in a complex one), and the size, the class and the external32 size of
            /// a scalar.
            const fn basic(self) -> (usize, usize, Class, usize) {
                match self {
                    $(Named::$name => ($units, $unit, Class::$class, $ext),)*
                    $(Named::$pair => (0, 0, Class::Pair, 0),)*
                }
            }
        }
    };
}

named! {
    basic {
        Char = "MPI_CHAR", 1 x 1, Signed, external 1;
        SignedChar = "MPI_SIGNED_CHAR", 1 x 1, Signed, external 1;
        UnsignedChar = "MPI_UNSIGNED_CHAR", 1 x 1, Unsigned, external 1;
        Short = "MPI_SHORT", 1 x 2, Signed, external 2;
        UnsignedShort = "MPI_UNSIGNED_SHORT", 1 x 2, Unsigned, external 2;
        Int = "MPI_INT", 1 x 4, Signed, external 4;
        Unsigned = "MPI_UNSIGNED", 1 x 4, Unsigned, external 4;
        Long = "MPI_LONG", 1 x 8, Signed, external 4;
        UnsignedLong = "MPI_UNSIGNED_LONG", 1 x 8, Unsigned, external 4;
        LongLong = "MPI_LONG_LONG_INT", 1 x 8, Signed, external 8;
        UnsignedLongLong = "MPI_UNSIGNED_LONG_LONG", 1 x 8, Unsigned, external 8;
        Float = "MPI_FLOAT", 1 x 4, Float, external 4;
        Double = "MPI_DOUBLE", 1 x 8, Float, external 8;
        LongDouble = "MPI_LONG_DOUBLE", 1 x 16, LongDouble, external 16;
        Wchar = "MPI_WCHAR", 1 x 4, Unsigned, external 2;
        CBool = "MPI_C_BOOL", 1 x 1, Unsigned, external 1;
        Int8 = "MPI_INT8_T", 1 x 1, Signed, external 1;
        Int16 = "MPI_INT16_T", 1 x 2, Signed, external 2;
        Int32 = "MPI_INT32_T", 1 x 4, Signed, external 4;
        Int64 = "MPI_INT64_T", 1 x 8, Signed, external 8;
        Uint8 = "MPI_UINT8_T", 1 x 1, Unsigned, external 1;
        Uint16 = "MPI_UINT16_T", 1 x 2, Unsigned, external 2;
        Uint32 = "MPI_UINT32_T", 1 x 4, Unsigned, external 4;
        Uint64 = "MPI_UINT64_T", 1 x 8, Unsigned, external 8;
        CFloatComplex = "MPI_C_FLOAT_COMPLEX", 2 x 4, Float, external 4;
        CDoubleComplex = "MPI_C_DOUBLE_COMPLEX", 2 x 8, Float, external 8;
        CLongDoubleComplex = "MPI_C_LONG_DOUBLE_COMPLEX", 2 x 16, LongDouble, external 16;
        CxxBool = "MPI_CXX_BOOL", 1 x 1, Unsigned, external 1;
        CxxFloatComplex = "MPI_CXX_FLOAT_COMPLEX", 2 x 4, Float, external 4;
        CxxDoubleComplex = "MPI_CXX_DOUBLE_COMPLEX", 2 x 8, Float, external 8;
        CxxLongDoubleComplex = "MPI_CXX_LONG_DOUBLE_COMPLEX", 2 x 16, LongDouble, external 16;
        Aint = "MPI_AINT", 1 x 8, Signed, external 8;
        Count = "MPI_COUNT", 1 x 8, Signed, external 8;
        Offset = "MPI_OFFSET", 1 x 8, Signed, external 8;
        Byte = "MPI_BYTE", 1 x 1, Opaque, external 1;
        Packed = "MPI_PACKED", 1 x 1, Opaque, external 1;
        Character = "MPI_CHARACTER", 1 x 1, Unsigned, external 1;
        Logical = "MPI_LOGICAL", 1 x 4, Unsigned, external 4;
        Integer = "MPI_INTEGER", 1 x 4, Signed, external 4;
        Real = "MPI_REAL", 1 x 4, Float, external 4;
        DoublePrecision = "MPI_DOUBLE_PRECISION", 1 x 8, Float, external 8;
        Complex = "MPI_COMPLEX", 2 x 4, Float, external 4;
        DoubleComplex = "MPI_DOUBLE_COMPLEX", 2 x 8, Float, external 8;
        Integer1 = "MPI_INTEGER1", 1 x 1, Signed, external 1;
        Integer2 = "MPI_INTEGER2", 1 x 2, Signed, external 2;
        Integer4 = "MPI_INTEGER4", 1 x 4, Signed, external 4;
        Integer8 = "MPI_INTEGER8", 1 x 8, Signed, external 8;
        Integer16 = "MPI_INTEGER16", 1 x 16, Signed, external 16;
        Real2 = "MPI_REAL2", 1 x 2, Float, external 2;
        Real4 = "MPI_REAL4", 1 x 4, Float, external 4;
        Real8 = "MPI_REAL8", 1 x 8, Float, external 8;
        Real16 = "MPI_REAL16", 1 x 16, Float, external 16;
        Complex4 = "MPI_COMPLEX4", 2 x 2, Float, external 2;
        Complex8 = "MPI_COMPLEX8", 2 x 4, Float, external 4;
        Complex16 = "MPI_COMPLEX16", 2 x 8, Float, external 8;
        Complex32 = "MPI_COMPLEX32", 2 x 16, Float, external 16;
        Logical1 = "MPI_LOGICAL1", 1 x 1, Unsigned, external 1;
        Logical2 = "MPI_LOGICAL2", 1 x 2, Unsigned, external 2;
        Logical4 = "MPI_LOGICAL4", 1 x 4, Unsigned, external 4;
        Logical8 = "MPI_LOGICAL8", 1 x 8, Unsigned, external 8;
        Logical16 = "MPI_LOGICAL16", 1 x 16, Unsigned, external 16;
    }
    pair {
        FloatInt = "MPI_FLOAT_INT", Float, Int;
        DoubleInt = "MPI_DOUBLE_INT", Double, Int;
        LongInt = "MPI_LONG_INT", Long, Int;
        TwoInt = "MPI_2INT", Int, Int;
        ShortInt = "MPI_SHORT_INT", Short, Int;
        LongDoubleInt = "MPI_LONG_DOUBLE_INT", LongDouble, Int;
        TwoReal = "MPI_2REAL", Real, Real;
        TwoDoublePrecision = "MPI_2DOUBLE_PRECISION", DoublePrecision, DoublePrecision;
        TwoInteger = "MPI_2INTEGER", Integer, Integer;
    }
}

/// Size, alignment and extent of an element in memory, in bytes.
#[derive(Clone, Copy)]
struct Dimensions {
    size: usize,
    align: usize,
    extent: usize,
    second_at: usize,
}

/// The dimensions of every type, precomputed because every MPI call needs them.
const DIMENSIONS: [Dimensions; Named::ALL.len()] = {
    let mut all = [Dimensions::of(Named::Byte); Named::ALL.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = Dimensions::of(Named::ALL[at]);
        at += 1;
    }
    all
};

impl Dimensions {
    const fn of(named: Named) -> Self {
        let Some((first, second)) = named.pair() else {
            let (units, unit, ..) = named.basic();
            return Self { size: units * unit, align: unit, extent: units * unit, second_at: 0 };
        };
        let (first, second) = (Self::of(first), Self::of(second));
        let second_at = first.size.next_multiple_of(second.align);
        let align = if first.align >= second.align { first.align } else { second.align };
        let extent = (second_at + second.size).next_multiple_of(align);
        Self { size: first.size + second.size, align, extent, second_at }
    }
}

impl Named {
    const fn dimensions(self) -> &'static Dimensions {
        &DIMENSIONS[self as usize]
    }

    /// Bytes of data: without the padding of a pair type.
    #[must_use]
    pub const fn size(self) -> usize {
        self.dimensions().size
    }

    /// The C alignment of the type in bytes.
    #[must_use]
    pub const fn align(self) -> usize {
        self.dimensions().align
    }

    /// Distance between array elements in bytes: `sizeof` of the C type.
    #[must_use]
    pub const fn extent(self) -> usize {
        self.dimensions().extent
    }

    /// Offset of the second element of a pair type.
    pub(crate) const fn second_at(self) -> usize {
        self.dimensions().second_at
    }

    /// Representation of a value in its bytes.
    #[must_use]
    pub const fn class(self) -> Class {
        self.basic().2
    }

    /// Whether an element is a complex number: two floats.
    #[must_use]
    pub const fn is_complex(self) -> bool {
        self.basic().0 == 2
    }

    /// Scalars of an element, and the bytes of one here and in external32.
    pub(crate) const fn scalars(self) -> (usize, usize, usize) {
        let (units, unit, _, external) = self.basic();
        (units, unit, external)
    }

    /// Bytes in external32 (MPI-4.1 table 14.2).
    #[must_use]
    pub const fn external_size(self) -> usize {
        match self.pair() {
            Some((first, second)) => first.external_size() + second.external_size(),
            None => {
                let (units, _, _, external) = self.basic();
                units * external
            }
        }
    }

    /// The signature of an element; a pair type counts as its two elements (MPI-4.1 §6.9.4).
    pub(crate) fn signature(self) -> Signature {
        match self.pair() {
            Some((first, second)) => Signature::element(first as u8).then(Signature::element(second as u8)),
            None => Signature::element(self as u8),
        }
    }
}
