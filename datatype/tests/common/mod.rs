//! Datatypes compared with lists of their elements, which are derived only from the standard's definitions.
#![allow(dead_code)] // each test program uses a part

use farside_datatype::{Darray, Datatype, Distribution, Named, Order, Subarray};

/// A datatype and its type map by definition: every element with its displacement, and the explicit bounds.
#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub datatype: Datatype,
    pub elements: Vec<(i64, Named)>,
    pub lbs: Vec<i64>,
    pub ubs: Vec<i64>,
}

/// The random choices of a type, one number each; 0 once the numbers are exhausted.
pub(crate) struct Script<'a>(std::slice::Iter<'a, u32>);

impl<'a> Script<'a> {
    pub(crate) fn new(choices: &'a [u32]) -> Self {
        Self(choices.iter())
    }

    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.0.next().map_or(0, |choice| choice % limit)
    }

    fn signed(&mut self, limit: u32) -> i64 {
        i64::from(self.below(2 * limit + 1)) - i64::from(limit)
    }

    fn list<T>(&mut self, one: impl Fn(&mut Self) -> T) -> Vec<T> {
        let len = self.below(5);
        (0..len).map(|_| one(self)).collect()
    }
}

impl Naive {
    pub(crate) fn named(named: Named) -> Self {
        let elements = match named.pair() {
            None => vec![(0, named)],
            Some((first, second)) => {
                let at = first.size().next_multiple_of(second.align());
                vec![(0, first), (at as i64, second)]
            }
        };
        Self { datatype: named.into(), elements, lbs: Vec::new(), ubs: Vec::new() }
    }

    pub(crate) fn lb(&self) -> i64 {
        let data = self.elements.iter().map(|(at, _)| *at).min();
        self.lbs.iter().copied().min().or(data).unwrap_or(0)
    }

    pub(crate) fn ub(&self) -> i64 {
        if let Some(ub) = self.ubs.iter().max() {
            return *ub;
        }
        let Some(end) = self.elements.iter().map(|(at, named)| at + named.size() as i64).max() else { return 0 };
        let align = self.elements.iter().map(|(_, named)| named.align() as i64).max().unwrap_or(1);
        (end..).find(|ub| (ub - self.lb()) % align == 0).unwrap()
    }

    pub(crate) fn extent(&self) -> i64 {
        self.ub() - self.lb()
    }

    /// This type at each of the displacements.
    fn at(&self, displacements: impl IntoIterator<Item = i64>, datatype: Datatype) -> Self {
        let mut whole = Self { datatype, elements: Vec::new(), lbs: Vec::new(), ubs: Vec::new() };
        for by in displacements {
            whole.elements.extend(self.elements.iter().map(|(at, named)| (at + by, *named)));
            whole.lbs.extend(self.lbs.iter().map(|at| at + by));
            whole.ubs.extend(self.ubs.iter().map(|at| at + by));
        }
        whole
    }

    /// The elements of a message of `count` of this type.
    pub(crate) fn message(&self, count: u64) -> Vec<(i64, Named)> {
        let extent = self.extent();
        (0..count as i64).flat_map(|i| self.elements.iter().map(move |(at, named)| (at + i * extent, *named))).collect()
    }

    pub(crate) fn random(script: &mut Script<'_>, depth: u32) -> Self {
        const LEAVES: [Named; 8] = [
            Named::Int,
            Named::Byte,
            Named::Double,
            Named::Short,
            Named::ShortInt,
            Named::DoubleInt,
            Named::CDoubleComplex,
            Named::LongDoubleInt,
        ];
        let kind = script.below(13);
        if depth == 0 || kind == 0 {
            return Self::named(LEAVES[script.below(8) as usize]);
        }
        if kind == 1 {
            return Self::random_struct(script, depth);
        }
        let old = Self::random(script, depth - 1);
        if old.elements.len() > 300 {
            return old;
        }
        let e = old.extent();
        let d = &old.datatype;
        let (count, block, stride) = (i64::from(script.below(4)), i64::from(script.below(4)), script.signed(5));
        let vector = |stride: i64| (0..count).flat_map(move |i| (0..block).map(move |j| i * stride + j * e));
        let blocks = |lens: &[u64], at: &[i64], unit: i64| {
            let pairs: Vec<_> = lens.iter().copied().zip(at.iter().copied()).collect();
            pairs.into_iter().flat_map(move |(len, at)| (0..len as i64).map(move |j| at * unit + j * e))
        };
        let (c, b) = (count as u64, block as u64);
        match kind {
            2 => old.at((0..count).map(|i| i * e), Datatype::contiguous(c, d).unwrap()),
            3 => old.at(vector(stride * e), Datatype::vector(c, b, stride, d).unwrap()),
            4 => old.at(vector(stride * 7), Datatype::hvector(c, b, stride * 7, d).unwrap()),
            5 | 6 => {
                let at = script.list(|s| s.signed(9));
                let lens: Vec<u64> = at.iter().map(|_| u64::from(script.below(4))).collect();
                if kind == 5 {
                    old.at(blocks(&lens, &at, e), Datatype::indexed(&lens, &at, d).unwrap())
                } else {
                    old.at(blocks(&lens, &at, 1), Datatype::hindexed(&lens, &at, d).unwrap())
                }
            }
            7 | 8 => {
                let at = script.list(|s| s.signed(9));
                let lens = vec![b; at.len()];
                if kind == 7 {
                    old.at(blocks(&lens, &at, e), Datatype::indexed_block(b, &at, d).unwrap())
                } else {
                    old.at(blocks(&lens, &at, 1), Datatype::hindexed_block(b, &at, d).unwrap())
                }
            }
            9 => {
                let (lb, extent) = (script.signed(20), script.signed(60));
                let datatype = Datatype::resized(d, lb, extent).unwrap();
                Self { datatype, lbs: vec![lb], ubs: vec![lb + extent], elements: old.elements }
            }
            10 => old.at([0], Datatype::contiguous(1, d).unwrap()),
            11 => old.random_subarray(script),
            _ => old.random_darray(script),
        }
    }

    fn random_struct(script: &mut Script<'_>, depth: u32) -> Self {
        let fields: Vec<(u64, i64, Naive)> =
            script.list(|s| (u64::from(s.below(3)), s.signed(30), Naive::random(s, depth - 1)));
        let lens: Vec<u64> = fields.iter().map(|field| field.0).collect();
        let at: Vec<i64> = fields.iter().map(|field| field.1).collect();
        let types: Vec<Datatype> = fields.iter().map(|field| field.2.datatype.clone()).collect();
        let datatype = Datatype::structure(&lens, &at, &types).unwrap();
        let mut whole = Self { datatype: datatype.clone(), elements: vec![], lbs: vec![], ubs: vec![] };
        for (len, at, old) in fields {
            let part = old.at((0..len as i64).map(|j| at + j * old.extent()), datatype.clone());
            whole.elements.extend(part.elements);
            whole.lbs.extend(part.lbs);
            whole.ubs.extend(part.ubs);
        }
        whole
    }

    /// The type's elements at linear positions of an array of `total` of them.
    fn array(&self, positions: Vec<u64>, total: u64, datatype: Datatype) -> Self {
        let e = self.extent();
        let mut whole = self.at(positions.into_iter().map(|p| p as i64 * e), datatype);
        (whole.lbs, whole.ubs) = (vec![0], vec![total as i64 * e]);
        whole
    }

    fn random_subarray(self, script: &mut Script<'_>) -> Self {
        let dims = 1 + script.below(3) as usize;
        let order = if script.below(2) == 0 { Order::C } else { Order::Fortran };
        let sizes: Vec<u64> = (0..dims).map(|_| u64::from(1 + script.below(4))).collect();
        let subsizes: Vec<u64> = sizes.iter().map(|n| 1 + u64::from(script.below(*n as u32))).collect();
        let starts: Vec<u64> =
            sizes.iter().zip(&subsizes).map(|(n, sub)| u64::from(script.below((n - sub + 1) as u32))).collect();
        let owned = |dim: usize, i: u64| (starts[dim]..starts[dim] + subsizes[dim]).contains(&i);
        let positions = positions(&sizes, order, owned);
        let array = Subarray { sizes: sizes.clone(), subsizes, starts, order, old: self.datatype.clone() };
        self.array(positions, sizes.iter().product(), Datatype::subarray(&array).unwrap())
    }

    fn random_darray(self, script: &mut Script<'_>) -> Self {
        let dims = 1 + script.below(3) as usize;
        let order = if script.below(2) == 0 { Order::C } else { Order::Fortran };
        let gsizes: Vec<u64> = (0..dims).map(|_| u64::from(1 + script.below(5))).collect();
        let (mut psizes, mut distributions) = (Vec::new(), Vec::new());
        for n in &gsizes {
            let p = u64::from(1 + script.below(3));
            let (p, how) = match script.below(4) {
                0 => (1, Distribution::None),
                1 => (p, Distribution::Block(None)),
                2 => (p, Distribution::Block(Some(n.div_ceil(p) + u64::from(script.below(2))))),
                _ => (p, Distribution::Cyclic(Some(u64::from(1 + script.below(3))))),
            };
            psizes.push(p);
            distributions.push(how);
        }
        let size: u64 = psizes.iter().product();
        let rank = u64::from(script.below(size as u32));
        // Row-major: the last coordinate changes fastest.
        let coords: Vec<u64> =
            (0..dims).map(|dim| rank / psizes[dim + 1..].iter().product::<u64>() % psizes[dim]).collect();
        let owned = |dim: usize, i: u64| match distributions[dim] {
            Distribution::None => true,
            Distribution::Block(block) => i / block.unwrap_or(gsizes[dim].div_ceil(psizes[dim])) == coords[dim],
            Distribution::Cyclic(block) => i / block.unwrap_or(1) % psizes[dim] == coords[dim],
        };
        let positions = positions(&gsizes, order, owned);
        let total = gsizes.iter().product();
        let distributions = distributions.clone();
        let array = Darray { size, rank, gsizes, distributions, psizes, order, old: self.datatype.clone() };
        self.array(positions, total, Datatype::darray(&array).unwrap())
    }
}

/// Linear positions of the owned elements, in memory order.
fn positions(sizes: &[u64], order: Order, owned: impl Fn(usize, u64) -> bool) -> Vec<u64> {
    let total: u64 = sizes.iter().product();
    (0..total)
        .filter(|position| {
            let mut rest = *position;
            let mut mine = |dim: usize| {
                let index = rest % sizes[dim];
                rest /= sizes[dim];
                owned(dim, index)
            };
            match order {
                Order::C => (0..sizes.len()).rev().all(&mut mine),
                Order::Fortran => (0..sizes.len()).all(&mut mine),
            }
        })
        .collect()
}

/// Every byte of a message, in packed order.
pub(crate) fn bytes(elements: &[(i64, Named)]) -> Vec<i64> {
    elements.iter().flat_map(|(at, named)| *at..at + named.size() as i64).collect()
}

/// A type with the same elements in the same order, separated by `gaps`, which are used cyclically.
pub(crate) fn spread(elements: &[(i64, Named)], gaps: &[i64]) -> Datatype {
    let (mut at, mut end) = (Vec::new(), 0);
    for ((_, named), gap) in elements.iter().zip(gaps.iter().cycle()) {
        at.push(end + gap);
        end += gap + named.size() as i64;
    }
    let types: Vec<Datatype> = elements.iter().map(|(_, named)| (*named).into()).collect();
    Datatype::structure(&vec![1; types.len()], &at, &types).unwrap()
}
