//! Data that ranks exchange, as bytes: integers little-endian, text and lists with their length before them.

/// Longest text or list that is read.
const LENGTH_MAX: usize = 1 << 24;

/// Data to send.
#[derive(Debug, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn list<T>(&mut self, of: &[T], mut each: impl FnMut(&mut Self, &T)) -> &mut Self {
        self.u32(of.len() as u32);
        of.iter().for_each(|one| each(self, one));
        self
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Data received. `None` if there is less than is read.
#[derive(Debug)]
pub(crate) struct Received<'a>(pub(crate) &'a [u8]);

impl<'a> Received<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).filter(|_| length <= LENGTH_MAX)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    pub(crate) fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.u32()? as usize;
        if length > LENGTH_MAX {
            return None;
        }
        (0..length).map(|_| each(self)).collect()
    }

    /// Nothing may follow.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(data: &[u8]) -> Option<(u8, u16, u64, String, Vec<u32>)> {
        let mut received = Received(data);
        let all = (received.u8()?, received.u16()?, received.u64()?, received.text()?, received.list(Received::u32)?);
        received.end().map(|()| all)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(a: u8, b: u16, c: u64, text: String, list: Vec<u32>) {
            let mut message = Message::default();
            message.u8(a).u16(b).u64(c).text(&text).list(&list, |message, one| { message.u32(*one); });
            let bytes = message.into_bytes();
            prop_assert_eq!(read(&bytes), Some((a, b, c, text, list)));
            let (shorter, mut longer) = (&bytes[..bytes.len() - 1], bytes.clone());
            longer.push(0);
            prop_assert_eq!(read(shorter), None);
            prop_assert_eq!(read(&longer), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn a_length_beyond_the_data_allocates_nothing() {
        assert_eq!(Received(&[0xff; 8]).list(Received::u32), None);
        assert_eq!(Received(&[0xff; 8]).bytes(), None);
    }
}
