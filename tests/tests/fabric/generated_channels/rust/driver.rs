//! The part of `fpga_driver::channel` that generated handles use. Its network is one queue of bytes.

pub mod channel {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;
    use std::time::Duration;

    #[derive(Debug)]
    #[non_exhaustive]
    pub enum Error {
        TimedOut { done: usize, waited: Duration },
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Settings {
        pub id: u8,
        pub word_bytes: u32,
        pub depth: u32,
    }

    #[derive(Default)]
    pub struct Network {
        queue: Rc<RefCell<VecDeque<u8>>>,
    }

    pub struct Writer {
        queue: Rc<RefCell<VecDeque<u8>>>,
        settings: Settings,
    }

    pub struct Reader {
        queue: Rc<RefCell<VecDeque<u8>>>,
        settings: Settings,
    }

    impl Network {
        pub fn writer(&self, _from: u32, _to: u32, settings: Settings) -> Result<Writer, Error> {
            Ok(Writer { queue: self.queue.clone(), settings })
        }

        pub fn reader(&self, _at: u32, settings: Settings) -> Result<Reader, Error> {
            Ok(Reader { queue: self.queue.clone(), settings })
        }
    }

    impl Writer {
        pub fn write(&mut self, words: &[u8], _timeout: Duration) -> Result<(), Error> {
            assert_eq!(words.len() % self.settings.word_bytes as usize, 0);
            self.queue.borrow_mut().extend(words);
            Ok(())
        }

        pub fn try_write(&mut self, words: &[u8]) -> Result<usize, Error> {
            // There is room for one word.
            let bytes = words.len().min(self.settings.word_bytes as usize);
            self.write(&words[..bytes], Duration::ZERO)?;
            Ok(bytes)
        }

        pub fn write_more(&mut self, words: &[u8], timeout: Duration) -> Result<(), Error> {
            self.write(words, timeout)
        }

        pub fn flush(&mut self, _timeout: Duration) -> Result<(), Error> {
            Ok(())
        }

        pub fn close(self, _timeout: Duration) -> Result<(), Error> {
            Ok(())
        }
    }

    impl Reader {
        pub fn read(&mut self, bytes: &mut [u8], _timeout: Duration) -> Result<usize, Error> {
            assert_eq!(bytes.len() % self.settings.word_bytes as usize, 0);
            let mut queue = self.queue.borrow_mut();
            let count = bytes.len().min(queue.len());
            bytes.iter_mut().zip(queue.drain(..count)).for_each(|(place, byte)| *place = byte);
            Ok(count)
        }

        pub fn read_exact(&mut self, bytes: &mut [u8], timeout: Duration) -> Result<(), Error> {
            match self.read(bytes, timeout)? {
                done if done == bytes.len() => Ok(()),
                done => Err(Error::TimedOut { done, waited: timeout }),
            }
        }

        pub fn try_read(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
            self.read(bytes, Duration::ZERO)
        }
    }
}
