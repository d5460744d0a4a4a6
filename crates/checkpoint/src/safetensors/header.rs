//! The safetensors header: eight bytes of length, then JSON that maps names to dtype, shape and byte range.
//!
//! The parser is our own because the message matters more than the parse: every refusal names the tensor and the rule it
//! breaks. Nothing is allocated on the word of the file: the stated header length is compared with the limit and with the
//! real size first, and everything after that is bounded by the bytes that are really there.
//!
//! Rules (those of the format's description, each with its own message):
//! names are unique, dtypes known, `end - begin` equals the product of the shape times the dtype's size, and the byte ranges,
//! sorted, cover the data exactly: no overlap, no hole, nothing past the end, nothing left over.

use std::collections::HashMap;
use std::fmt;

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::{CheckpointError, quoted};
use crate::read::sentence;

/// Longest header that is read, in bytes (256 MiB). The largest known legal one has 132 MB.
pub const HEADER_BYTES_MAX: u64 = 256 << 20;

/// Element types of the format. Only `F32`, `F16` and `BF16` are read as weights; the others are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the variants are the format's own names")]
pub enum Dtype {
    Bool,
    F4,
    F6E2m3,
    F6E3m2,
    U8,
    I8,
    F8E5m2,
    F8E4m3,
    F8E8m0,
    I16,
    U16,
    F16,
    Bf16,
    I32,
    U32,
    F32,
    C64,
    F64,
    I64,
    U64,
}

impl Dtype {
    /// All element types, with the name they have in files and their size in bits.
    pub const ALL: [(Dtype, &'static str, u64); 20] = [
        (Dtype::Bool, "BOOL", 8),
        (Dtype::F4, "F4", 4),
        (Dtype::F6E2m3, "F6_E2M3", 6),
        (Dtype::F6E3m2, "F6_E3M2", 6),
        (Dtype::U8, "U8", 8),
        (Dtype::I8, "I8", 8),
        (Dtype::F8E5m2, "F8_E5M2", 8),
        (Dtype::F8E4m3, "F8_E4M3", 8),
        (Dtype::F8E8m0, "F8_E8M0", 8),
        (Dtype::I16, "I16", 16),
        (Dtype::U16, "U16", 16),
        (Dtype::F16, "F16", 16),
        (Dtype::Bf16, "BF16", 16),
        (Dtype::I32, "I32", 32),
        (Dtype::U32, "U32", 32),
        (Dtype::F32, "F32", 32),
        (Dtype::C64, "C64", 64),
        (Dtype::F64, "F64", 64),
        (Dtype::I64, "I64", 64),
        (Dtype::U64, "U64", 64),
    ];

    /// The name used in files.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Size of one element in bits.
    pub fn bits(self) -> u64 {
        Self::ALL[self as usize].2
    }

    /// The dtype with this name in files.
    pub fn parse(name: &str) -> Option<Dtype> {
        Self::ALL
            .iter()
            .find(|(_, n, _)| *n == name)
            .map(|&(d, _, _)| d)
    }
}

/// One tensor of a file: where it is and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name in the file.
    pub name: String,
    /// Element type in the file.
    pub dtype: Dtype,
    /// Extents, slowest first; empty for a scalar.
    pub shape: Vec<u64>,
    /// First byte, counted from the start of the data section.
    pub begin: u64,
    /// One past the last byte, counted from the start of the data section.
    pub end: u64,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// A checked header: the ranges of its tensors tile the data section.
#[derive(Clone, Debug, Default)]
pub struct Header {
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
    metadata: HashMap<String, String>,
    data_begin: u64,
}

impl Header {
    /// The tensors in the order of their bytes in the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&i| &self.tensors[i])
    }

    /// The free-form `__metadata__` block.
    pub fn metadata(&self) -> &HashMap<String, String> {
        &self.metadata
    }

    /// File offset of the data section.
    pub fn data_begin(&self) -> u64 {
        self.data_begin
    }

    /// Parses and checks the header at the start of `file`, the whole file (usually a memory map, of which only the header
    /// is touched). The error text does not name the file; the caller knows it.
    pub fn parse(file: &[u8]) -> Result<Header, CheckpointError> {
        let size = file.len() as u64;
        let Some((prefix, rest)) = file.split_first_chunk::<8>() else {
            return Err(CheckpointError::malformed(format!(
                "truncated: the file has {size} bytes, expected at least the 8 bytes of the header length"
            )));
        };
        let stated = u64::from_le_bytes(*prefix);
        if stated > HEADER_BYTES_MAX {
            return Err(CheckpointError::malformed(format!(
                "the header says it is {stated} bytes long; the file has {size} bytes and the limit is {HEADER_BYTES_MAX} (256 MiB)"
            )));
        }
        if stated > rest.len() as u64 {
            return Err(CheckpointError::malformed(format!(
                "truncated, or not a safetensors file: the header says it is {stated} bytes long, so the file must have at least {} bytes, found {size} (limit of a header: {HEADER_BYTES_MAX})",
                stated + 8
            )));
        }
        // `stated` fits in usize because it is no longer than a slice.
        let (json, data) = rest.split_at(stated as usize);
        if json.first() != Some(&b'{') {
            return Err(CheckpointError::malformed(format!(
                "not a safetensors file: the header ({stated} bytes) must begin with '{{'"
            )));
        }
        let mut de = serde_json::Deserializer::from_slice(json);
        let parsed = HeaderSeed
            .deserialize(&mut de)
            .and_then(|h| de.end().map(|()| h));
        let (tensors, metadata) =
            parsed.map_err(|e| CheckpointError::malformed(format!("header: {}", sentence(&e))))?;
        check_layout(tensors, metadata, stated + 8, data.len() as u64)
    }
}

/// The checks across tensors: sorted by position, they must tile `data_bytes` bytes.
fn check_layout(
    mut tensors: Vec<TensorInfo>,
    metadata: HashMap<String, String>,
    data_begin: u64,
    data_bytes: u64,
) -> Result<Header, CheckpointError> {
    tensors.sort_by(|a, b| (a.begin, a.end, &a.name).cmp(&(b.begin, b.end, &b.name)));
    let mut covered = 0;
    let mut last = "the start of the data";
    let mut last_quoted;
    for tensor in &tensors {
        if tensor.begin < covered {
            return Err(CheckpointError::malformed(format!(
                "tensor {}: bytes {}..{} overlap {last}, which ends at {covered}",
                quoted(&tensor.name),
                tensor.begin,
                tensor.end
            )));
        }
        if tensor.begin > covered {
            return Err(CheckpointError::malformed(format!(
                "tensor {}: hole of {} bytes between {last} (ends at {covered}) and its first byte {}; tensors must follow one another",
                quoted(&tensor.name),
                tensor.begin - covered,
                tensor.begin
            )));
        }
        covered = tensor.end;
        last_quoted = format!("tensor {}", quoted(&tensor.name));
        last = &last_quoted;
    }
    if covered > data_bytes {
        let first_cut = tensors
            .iter()
            .find(|t| t.end > data_bytes)
            .map_or_else(String::new, |t| quoted(&t.name));
        return Err(CheckpointError::malformed(format!(
            "tensor {first_cut}: ends past the end of the file; expected size {} bytes, real size {} (truncated download?)",
            // Sums of numbers from the file: saturate rather than wrap, the text is all they are for.
            data_begin.saturating_add(covered),
            data_begin + data_bytes
        )));
    }
    if covered < data_bytes {
        return Err(CheckpointError::malformed(format!(
            "{} bytes after {last} belong to no tensor; expected size {} bytes, real size {}",
            data_bytes - covered,
            data_begin + covered,
            data_begin + data_bytes
        )));
    }
    let by_name = tensors
        .iter()
        .enumerate()
        .map(|(i, t)| (t.name.clone(), i))
        .collect();
    Ok(Header {
        tensors,
        by_name,
        metadata,
        data_begin,
    })
}

type Parsed = (Vec<TensorInfo>, HashMap<String, String>);

/// Streams the top-level object, so that a header of a million tensors costs only the tensors.
struct HeaderSeed;

impl<'de> DeserializeSeed<'de> for HeaderSeed {
    type Value = Parsed;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Parsed, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderSeed {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that maps tensor names to their dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let mut tensors: Vec<TensorInfo> = Vec::new();
        let mut names = std::collections::HashSet::new();
        let mut metadata = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                if metadata.is_some() {
                    return Err(de::Error::custom("the key \"__metadata__\" appears twice"));
                }
                metadata = Some(map.next_value_seed(StringMap {
                    what: "__metadata__",
                })?);
                continue;
            }
            if !names.insert(name.clone()) {
                return Err(de::Error::custom(format!(
                    "tensor {}: the name appears twice",
                    quoted(&name)
                )));
            }
            let shown = quoted(&name);
            let tensor = map
                .next_value_seed(TensorSeed { name })
                .map_err(|e| de::Error::custom(format!("tensor {shown}: {e}")))?;
            tensors.push(tensor);
        }
        Ok((tensors, metadata.unwrap_or_default()))
    }
}

struct TensorSeed {
    name: String,
}

impl<'de> DeserializeSeed<'de> for TensorSeed {
    type Value = TensorInfo;

    fn deserialize<D: de::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<TensorInfo, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TensorSeed {
    type Value = TensorInfo;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TensorInfo, A::Error> {
        let custom = |text: String| -> A::Error { de::Error::custom(text) };
        let (mut dtype, mut shape, mut offsets) =
            (None::<String>, None::<Vec<u64>>, None::<[u64; 2]>);
        while let Some(key) = map.next_key::<String>()? {
            let twice = match key.as_str() {
                "dtype" => dtype.replace(map.next_value()?).is_some(),
                "shape" => shape.replace(map.next_value_seed(Extents)?).is_some(),
                "data_offsets" => offsets.replace(map.next_value()?).is_some(),
                // An entry that this reader does not know could change the meaning of the bytes.
                other => {
                    map.next_value::<IgnoredAny>()?;
                    return Err(custom(format!(
                        "unknown key {}, expected dtype, shape and data_offsets",
                        quoted(other)
                    )));
                }
            };
            if twice {
                return Err(custom(format!("the key {} appears twice", quoted(&key))));
            }
        }
        let missing = |key: &str| custom(format!("the key {key:?} is missing"));
        let dtype = dtype.ok_or_else(|| missing("dtype"))?;
        let shape = shape.ok_or_else(|| missing("shape"))?;
        let [begin, end] = offsets.ok_or_else(|| missing("data_offsets"))?;
        let dtype = Dtype::parse(&dtype).ok_or_else(|| {
            custom(format!(
                "unknown dtype {}; this reader knows {}",
                quoted(&dtype),
                Dtype::ALL.map(|(_, n, _)| n).join(", ")
            ))
        })?;
        let bits = shape
            .iter()
            .try_fold(1u64, |n, &extent| n.checked_mul(extent))
            .and_then(|n| n.checked_mul(dtype.bits()));
        let Some(bits) = bits else {
            return Err(custom(format!(
                "shape {shape:?} of {} has more than 2^64 bits",
                dtype.name()
            )));
        };
        if bits % 8 != 0 {
            return Err(custom(format!(
                "shape {shape:?} of {} is not a whole number of bytes",
                dtype.name()
            )));
        }
        if begin > end {
            return Err(custom(format!(
                "data_offsets [{begin}, {end}] end before they begin"
            )));
        }
        if end - begin != bits / 8 {
            return Err(custom(format!(
                "shape {shape:?} of {} takes {} bytes, but data_offsets [{begin}, {end}] hold {}",
                dtype.name(),
                bits / 8,
                end - begin
            )));
        }
        Ok(TensorInfo {
            name: self.name,
            dtype,
            shape,
            begin,
            end,
        })
    }
}

/// A list of extents; more than 16 are refused (no framework makes them), so that messages that print a shape stay short.
struct Extents;

impl<'de> DeserializeSeed<'de> for Extents {
    type Value = Vec<u64>;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u64>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Extents {
    type Value = Vec<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of at most 16 extents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u64>, A::Error> {
        let mut extents = Vec::new();
        while let Some(extent) = seq.next_element()? {
            if extents.len() == 16 {
                return Err(de::Error::custom("the shape has more than 16 extents"));
            }
            extents.push(extent);
        }
        Ok(extents)
    }
}

/// An object of strings in which no key may appear twice; also the `weight_map` of an index.
pub(super) struct StringMap {
    pub(super) what: &'static str,
}

impl<'de> DeserializeSeed<'de> for StringMap {
    type Value = HashMap<String, String>;

    fn deserialize<D: de::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StringMap {
    type Value = HashMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, an object of strings", self.what)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut strings = HashMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value::<String>().map_err(|e| {
                de::Error::custom(format!("{}, key {}: {e}", self.what, quoted(&key)))
            })?;
            if strings.contains_key(&key) {
                return Err(de::Error::custom(format!(
                    "{}: the key {} appears twice",
                    self.what,
                    quoted(&key)
                )));
            }
            strings.insert(key, value);
        }
        Ok(strings)
    }
}
