//! Info objects: keys and values in the order in which they were set.

use std::cell::RefCell;
use std::rc::Rc;

use crate::constants::*;
use crate::handle::Objects;

/// An info object.
#[derive(Debug, Default)]
pub struct InfoObject {
    pub pairs: RefCell<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl InfoObject {
    /// An info object with these pairs.
    pub fn of(pairs: &[(&str, &str)]) -> Rc<Self> {
        let info = Self::default();
        for (key, value) in pairs {
            info.set(key.as_bytes().to_vec(), value.as_bytes().to_vec());
        }
        Rc::new(info)
    }

    pub fn set(&self, key: Vec<u8>, value: Vec<u8>) {
        let mut pairs = self.pairs.borrow_mut();
        match pairs.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => pairs.push((key, value)),
        }
    }

    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.pairs.borrow().iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())
    }

    /// The alignment of memory that the hint requires, if its value is valid.
    pub fn alignment(&self) -> Option<usize> {
        let text = self.get(b"mpi_minimum_memory_alignment")?;
        std::str::from_utf8(&text).ok()?.parse().ok().filter(|align: &usize| align.is_power_of_two())
    }

    pub fn copy(&self) -> Rc<Self> {
        Rc::new(Self { pairs: self.pairs.clone() })
    }
}

/// Creates `MPI_INFO_ENV` with the information about the start of the program.
pub fn predefined(infos: &Objects<Info, InfoObject>) {
    let info = InfoObject::default();
    let set = |key: &str, value: Vec<u8>| info.set(key.as_bytes().to_vec(), value);
    if let Ok(line) = std::fs::read("/proc/self/cmdline") {
        let mut words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        if let Some(command) = words.next() {
            set("command", command.to_vec());
            set("argv", words.collect::<Vec<_>>().join(&b' '));
        }
    }
    if let Ok(size) = std::env::var("PMI_SIZE") {
        set("maxprocs", size.into_bytes());
    }
    if let Ok(folder) = std::env::current_dir() {
        set("wdir", folder.into_os_string().into_encoded_bytes());
    }
    set("arch", std::env::consts::ARCH.into());
    infos.set_predefined(MPI_INFO_ENV, Some(Rc::new(info)));
}

/// The values that a Fortran library has set.
#[derive(Default)]
pub struct Fortran {
    pub info: RefCell<Option<Rc<InfoObject>>>,
    /// The bytes of the values true and false.
    pub booleans: RefCell<Option<(Vec<u8>, Vec<u8>)>>,
}
