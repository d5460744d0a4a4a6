//! Whole files: eight bytes of length, JSON, data. What parses must tile the data.
#![no_main]

use libfuzzer_sys::fuzz_target;
use snellen_checkpoint::safetensors::Header;

fuzz_target!(|file: &[u8]| {
    if let Ok(header) = Header::parse(file) {
        let mut covered = 0;
        for tensor in header.tensors() {
            assert_eq!(tensor.begin, covered);
            covered = tensor.end;
        }
        assert_eq!(header.data_begin() + covered, file.len() as u64);
    }
});
