#![allow(unsafe_code)]
//! The arguments of a call, by the names of the standard.

use std::ffi::{c_int, c_void};

use crate::pmpi;
use crate::pmpi::{IN_PLACE, INFO_NULL};
use crate::shadow::Object;

/// The value of one argument.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    Int(i64),
    Ints(*const c_int),
    Longs(*const i64),
    Handle(usize),
    Handles(*const usize),
    /// The address at which a handle is written.
    Out(*mut usize),
    Address(*const c_void),
}

/// The arguments of one call, by name. Pointers are those of the program, and are dereferenced only during the call.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a>(pub &'a [(&'a str, Value)]);

impl Arguments<'_> {
    fn get(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::Int(value) => Some(value),
            _ => None,
        }
    }

    pub fn handle(&self, name: &str) -> Option<usize> {
        match self.get(name)? {
            Value::Handle(value) => Some(value),
            _ => None,
        }
    }

    pub fn address(&self, name: &str) -> Option<usize> {
        match self.get(name)? {
            Value::Address(at) => Some(at.addr()),
            Value::Ints(at) => Some(at.addr()),
            _ => None,
        }
    }

    pub fn out(&self, name: &str) -> Option<*mut usize> {
        match self.get(name)? {
            Value::Out(at) => Some(at),
            _ => None,
        }
    }

    /// Whether the argument is a list, and not null.
    pub fn is_list(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Value::Ints(at)) => !at.is_null(),
            Some(Value::Longs(at)) => !at.is_null(),
            Some(Value::Handles(at)) => !at.is_null(),
            _ => false,
        }
    }

    /// The first `n` values of a list; none if the argument is not a list or is null.
    pub fn list(&self, name: &str, n: usize) -> Vec<i64> {
        if !self.is_list(name) {
            return Vec::new();
        }
        // SAFETY: the program passes a list of `n` elements, as the standard requires of this argument.
        unsafe {
            match self.get(name) {
                Some(Value::Ints(at)) => (0..n).map(|i| i64::from(*at.add(i))).collect(),
                Some(Value::Longs(at)) => (0..n).map(|i| *at.add(i)).collect(),
                Some(Value::Handles(at)) => (0..n).map(|i| *at.add(i) as i64).collect(),
                _ => Vec::new(),
            }
        }
    }

    pub fn in_place(&self) -> bool {
        ["sendbuf", "recvbuf"].iter().any(|name| self.address(name) == Some(IN_PLACE))
    }

    /// The communicator on which the call is made.
    pub fn comm(&self) -> Option<usize> {
        self.0.iter().find_map(|(name, value)| match (*name, value) {
            ("comm" | "comm_old" | "local_comm" | "intercomm", Value::Handle(comm)) => Some(*comm),
            // SAFETY: a call that frees a communicator; the program passes the address of its handle.
            ("comm", Value::Out(at)) if !at.is_null() => Some(unsafe { **at }),
            _ => None,
        })
    }

    /// The window on which the call is made, not a window that it creates.
    pub fn win(&self) -> Option<usize> {
        match (self.get("win")?, self.comm()) {
            (Value::Handle(win), _) => Some(win),
            // SAFETY: as above.
            (Value::Out(at), None) if !at.is_null() => Some(unsafe { *at }),
            _ => None,
        }
    }

    pub fn object(&self) -> Option<Object> {
        self.win().map(Object::Win).or_else(|| self.comm().map(Object::Comm))
    }

    /// The communicator that the call has created.
    pub fn created_comm(&self) -> Option<usize> {
        const NAMES: &[&str] =
            &["newcomm", "comm_cart", "comm_graph", "comm_dist_graph", "newintercomm", "newintracomm", "intercomm"];
        // SAFETY: the call has written the handle.
        NAMES.iter().find_map(|name| self.out(name)).map(|at| unsafe { *at })
    }
}

/// The keys and values of an Info object, in order.
pub fn info(handle: usize) -> Vec<(String, String)> {
    let mut out = Vec::new();
    if handle == INFO_NULL {
        return out;
    }
    let text =
        |bytes: &[u8]| String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or(&[])).into_owned();
    let mut keys = 0;
    // SAFETY: the function writes one number.
    unsafe { pmpi::MPI_Info_get_nkeys(handle, &raw mut keys) };
    for n in 0..keys {
        let (mut key, mut value) = ([0u8; 257], [0u8; 1025]);
        let (mut length, mut flag) = (value.len() as c_int, 0);
        // SAFETY: the buffers have the greatest lengths of the ABI, and a byte more.
        unsafe {
            pmpi::MPI_Info_get_nthkey(handle, n, key.as_mut_ptr().cast());
            let value = value.as_mut_ptr().cast();
            pmpi::MPI_Info_get_string(handle, key.as_ptr().cast(), &raw mut length, value, &raw mut flag);
        }
        out.push((text(&key), text(&value)));
    }
    out.sort();
    out
}
