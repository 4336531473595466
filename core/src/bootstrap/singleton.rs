//! A program started by hand: rank 0 of 1. The smallest backend; it reads as the specification of the seam.

use std::collections::HashMap;

use super::{Bootstrap, check_key, check_value, no_such_key, report_abort};
use crate::error::Result;

/// Rank 0 of 1.
#[derive(Debug)]
pub struct Singleton {
    job_id: String,
    pending: HashMap<String, Vec<u8>>,
    visible: HashMap<String, Vec<u8>>,
}

impl Singleton {
    /// A job of one rank, named after this process.
    #[must_use]
    pub fn new() -> Self {
        Self { job_id: format!("singleton-{}", std::process::id()), pending: HashMap::new(), visible: HashMap::new() }
    }
}

impl Default for Singleton {
    fn default() -> Self {
        Self::new()
    }
}

impl Bootstrap for Singleton {
    fn kind(&self) -> &'static str {
        "singleton"
    }

    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn job_id(&self) -> &str {
        &self.job_id
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        check_key("bootstrap put", key)?;
        check_value("bootstrap put", key, value)?;
        self.pending.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.visible.extend(self.pending.drain());
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        check_key("bootstrap get", key)?;
        self.visible.get(key).cloned().ok_or_else(|| no_such_key("bootstrap get", key))
    }

    fn finalize(&mut self) -> Result<()> {
        Ok(())
    }

    fn abort(&mut self, _code: i32, reason: &str) {
        report_abort(0, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::{KEY_MAX, VALUE_MAX};
    use crate::error::ErrorKind;

    #[test]
    fn put_is_visible_after_the_fence_only() {
        let mut s = Singleton::new();
        assert_eq!((s.rank(), s.size()), (0, 1));
        s.put("a", b"1").unwrap();
        assert_eq!(s.get("a").unwrap_err().kind(), ErrorKind::Protocol);
        s.fence().unwrap();
        assert_eq!(s.get("a").unwrap(), b"1");
        s.finalize().unwrap();
    }

    #[test]
    fn put_refuses_bad_keys_and_long_values() {
        let mut s = Singleton::new();
        let long = "k".repeat(KEY_MAX + 1);
        for key in ["", "a b", "a=b", "a~1", "ä", long.as_str()] {
            assert_eq!(s.put(key, b"").unwrap_err().kind(), ErrorKind::BadArgument, "{key:?}");
            assert_eq!(s.get(key).unwrap_err().kind(), ErrorKind::BadArgument, "{key:?}");
        }
        s.put(&"k".repeat(KEY_MAX), &vec![0; VALUE_MAX]).unwrap();
        assert_eq!(s.put("k", &vec![0; VALUE_MAX + 1]).unwrap_err().kind(), ErrorKind::BadArgument);
    }
}
