//! Checks that a binary can start in an image without other files: that it is for the right processor, and statically
//! linked. A static position-independent binary has a dynamic segment for its own relocation, but names neither an
//! interpreter nor a library; the check looks for these two.

use crate::platform::Processor;
use object::Endianness;
use object::elf::{DT_NEEDED, EM_AARCH64, EM_X86_64, ET_DYN, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

type Header = FileHeader64<Endianness>;

/// How a static binary is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// Loaded at fixed addresses.
    Fixed,
    /// Loaded at addresses that the kernel chooses at each start.
    PositionIndependent,
}

/// The binary cannot start in the image.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("the binary is not a 64-bit ELF executable ({0}): give the binary that cargo built for Linux")]
    Format(String),
    #[error(
        "the binary is for another processor than {wanted}: build it for {wanted}, or set its platform with --platform"
    )]
    Processor { wanted: Processor },
    #[error(
        "the binary is linked dynamically (it asks for {0}), and an image without any library cannot start it: build it with \
         `-C target-feature=+crt-static`, as `cargo ship build` does"
    )]
    Dynamic(String),
}

impl From<object::read::Error> for Error {
    fn from(error: object::read::Error) -> Self {
        Self::Format(error.to_string())
    }
}

/// Checks the headers of a binary.
pub(crate) fn check(binary: &[u8], wanted: Processor) -> Result<Linkage, Error> {
    let header = Header::parse(binary)?;
    let endian = header.endian()?;
    if header.e_machine(endian) != machine(wanted) {
        return Err(Error::Processor { wanted });
    }
    for segment in header.program_headers(endian, binary)? {
        if let Some(interpreter) = segment.interpreter(endian, binary)? {
            return Err(Error::Dynamic(String::from_utf8_lossy(interpreter).into_owned()));
        }
        let entries = segment.dynamic(endian, binary)?.unwrap_or_default();
        if entries.iter().any(|entry| entry.tag(endian) == DT_NEEDED) {
            return Err(Error::Dynamic("a shared library".to_owned()));
        }
    }
    Ok(linkage(header.e_type(endian)))
}

/// The version of glibc in a binary, from the text that glibc contains for its own version output.
pub(crate) fn glibc(binary: &[u8]) -> Option<String> {
    const VERSION_PREFIX: &[u8] = b"stable release version ";
    let start = binary
        .windows(VERSION_PREFIX.len())
        .position(|window| window == VERSION_PREFIX)?
        + VERSION_PREFIX.len();
    let of_version = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
    let version: Vec<u8> = binary[start..].iter().take_while(of_version).copied().collect();
    let version = String::from_utf8(version).ok()?;
    Some(version.trim_end_matches('.').to_owned())
}

fn machine(processor: Processor) -> u16 {
    match processor {
        Processor::Amd64 => EM_X86_64,
        Processor::Arm64 => EM_AARCH64,
    }
}

fn linkage(kind: u16) -> Linkage {
    if kind == ET_DYN {
        Linkage::PositionIndependent
    } else {
        Linkage::Fixed
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An ELF file that consists of headers only, with one segment of this type and content.
    pub(crate) fn elf(machine: u16, segment: u32, content: &[u8]) -> Vec<u8> {
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
        file.resize(16, 0);
        let halves: [u16; 2] = [2, machine];
        file.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
        file.extend(1_u32.to_le_bytes());
        // Entry point, offset of the program headers directly after this header, no section headers.
        for word in [0x40_0000_u64, 64, 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0_u32.to_le_bytes());
        for half in [64_u16, 56, 1, 64, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        file.extend(segment.to_le_bytes());
        file.extend(5_u32.to_le_bytes());
        let length = content.len() as u64;
        for word in [120, 0x40_0000, 0x40_0000, length, length, 8] {
            file.extend(word.to_le_bytes());
        }
        file.extend(content);
        file
    }

    /// The smallest file that passes the check.
    pub(crate) fn static_elf() -> Vec<u8> {
        elf(EM_X86_64, object::elf::PT_LOAD, b"code")
    }

    fn dynamic(tag: i64) -> Vec<u8> {
        let entries = [tag, 1, 0, 0];
        let content: Vec<u8> = entries.iter().flat_map(|word| word.to_le_bytes()).collect();
        elf(EM_X86_64, object::elf::PT_DYNAMIC, &content)
    }

    #[test]
    fn a_static_binary_for_the_right_processor_passes() {
        assert_eq!(check(&static_elf(), Processor::Amd64), Ok(Linkage::Fixed));
    }

    #[test]
    fn a_dynamic_segment_without_libraries_passes() {
        assert_eq!(
            check(&dynamic(object::elf::DT_RELA), Processor::Amd64),
            Ok(Linkage::Fixed)
        );
    }

    #[test]
    fn a_needed_library_is_refused() {
        assert!(matches!(
            check(&dynamic(DT_NEEDED), Processor::Amd64),
            Err(Error::Dynamic(_))
        ));
    }

    #[test]
    fn an_interpreter_is_refused_by_its_name() {
        let interpreted = elf(
            EM_X86_64,
            object::elf::PT_INTERP,
            b"/lib64/ld-linux-x86-64.so.2\0",
        );
        let error = check(&interpreted, Processor::Amd64).unwrap_err().to_string();
        assert!(
            error.contains("/lib64/ld-linux-x86-64.so.2") && error.contains("crt-static"),
            "{error}"
        );
    }

    #[test]
    fn another_processor_is_refused() {
        let error = check(&static_elf(), Processor::Arm64).unwrap_err().to_string();
        assert!(error.contains("linux/arm64"), "{error}");
    }

    #[test]
    fn the_binary_of_this_test_is_dynamic_and_refused() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let own_processor = if cfg!(target_arch = "x86_64") {
            Processor::Amd64
        } else {
            Processor::Arm64
        };
        assert!(matches!(check(&own, own_processor), Err(Error::Dynamic(_))));
    }

    #[test]
    fn the_version_of_glibc_is_read_from_its_own_text() {
        let words = b"\0GNU C Library (Debian) stable release version 2.36.\nCopyright";
        assert_eq!(glibc(words).as_deref(), Some("2.36"));
        assert_eq!(glibc(b"stable"), None);
    }

    #[test]
    fn a_script_is_no_executable() {
        assert!(matches!(
            check(b"#!/bin/sh\n", Processor::Amd64),
            Err(Error::Format(_))
        ));
    }
}
