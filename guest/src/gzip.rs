//! Bodies as gzip, both ways.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::network::Broken;
use crate::response::Ending;

/// Below this, a body is about one packet either way.
const WORTHWHILE: usize = 1024;

/// None where that is not worth while.
pub(crate) fn pack(body: &[u8]) -> Option<Vec<u8>> {
    if body.len() < WORTHWHILE {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder
        .finish()
        .ok()
        .filter(|packed| packed.len() < body.len())
}

/// Up to a bit more than `limit`, however much is in it. Of a body that broke off, what came.
pub(crate) fn unpack(body: &[u8], ending: Ending, limit: usize) -> (Vec<u8>, Ending) {
    let enough = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut unpacked = Vec::new();
    let result = MultiGzDecoder::new(body)
        .take(enough)
        .read_to_end(&mut unpacked);
    let ending = match (result, ending) {
        (_, _) if unpacked.len() > limit => Ending::Cut,
        (Err(_), Ending::Whole) => Ending::Broken(Broken::Interrupted),
        (_, ending) => ending,
    };
    (unpacked, ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let body = "a document ".repeat(10_000).into_bytes();
        let packed = pack(&body).unwrap();
        assert!(packed.len() < body.len() / 10);
        assert_eq!(
            unpack(&packed, Ending::Whole, body.len()),
            (body, Ending::Whole)
        );
    }

    #[test]
    fn what_does_not_get_smaller_is_left_as_it_is() {
        assert_eq!(pack(b"short"), None);
        let mut noise = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (noise >> 56) as u8
        })
        .take(10_000)
        .collect();
        assert_eq!(pack(&noise), None);
    }

    #[test]
    fn a_bomb_is_cut() {
        let packed = pack(&vec![b' '; 10_000_000]).unwrap();
        let (body, ending) = unpack(&packed, Ending::Whole, 1000);
        assert_eq!((body.len(), ending), (1001, Ending::Cut));
    }

    #[test]
    fn a_body_that_is_cut_short_is_broken() {
        let packed = pack(&[b'a'; 5000]).unwrap();
        let (_, ending) = unpack(&packed[..packed.len() - 9], Ending::Whole, 10_000);
        assert_eq!(ending, Ending::Broken(Broken::Interrupted));
        let (_, ending) = unpack(b"no gzip", Ending::Whole, 10_000);
        assert_eq!(ending, Ending::Broken(Broken::Interrupted));
    }
}
