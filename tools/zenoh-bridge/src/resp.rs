//! Writing readings to a server that speaks RESP, over one connection at a time.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::readings::{Reading, Readings};

/// The first and the longest wait before a lost connection is opened again; each next wait is twice as long.
const RETRY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// Longest wait for each reply: a server answers within a second, if only with `LATE`.
const REPLY_WITHIN: Duration = Duration::from_secs(5);
/// The longest reply in bytes; replies to `TSET` are shorter than 1 KiB.
const REPLY_MAX: u64 = 4096;

/// Writes readings without an end; opens the connection again whenever it is lost.
pub fn write_all(server: &str, readings: &Readings) -> ! {
    let [first, most] = RETRY;
    let (mut wait, mut noted) = (first, String::new());
    loop {
        let error = match Connection::open(server) {
            Err(error) => error,
            Ok(mut connection) => {
                eprintln!("{server}: connected");
                noted.clear();
                loop {
                    match connection.write(readings.take(), readings) {
                        Ok(()) => wait = first,
                        Err(error) => break error,
                    }
                }
            }
        };
        let note = format!("{server}: {error}; retrying, after {} s at most", most.as_secs());
        if note != noted {
            eprintln!("{note}");
            noted = note;
        }
        std::thread::sleep(wait);
        wait = (2 * wait).min(most);
    }
}

struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(server: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_WITHIN))?;
        stream.set_write_timeout(Some(REPLY_WITHIN))?;
        Ok(Connection {
            stream: BufReader::new(stream),
        })
    }

    /// Writes readings, all at once, and counts the replies. On an error, those without a reply wait again.
    fn write(&mut self, batch: BTreeMap<String, Reading>, readings: &Readings) -> io::Result<()> {
        let (mut bytes, now) = (Vec::new(), Instant::now());
        for (object, reading) in &batch {
            // Rounded up: an age is never told as less than it is.
            let age = reading.age_at(now).as_nanos().div_ceil(1_000_000).to_string();
            command(
                &mut bytes,
                &[b"TSET", object.as_bytes(), &reading.value, b"AGE", age.as_bytes()],
            );
        }
        let mut sent = self.stream.get_mut().write_all(&bytes);
        for (object, reading) in batch {
            sent = sent.and_then(|()| {
                let reply = self.reply()?;
                note(&object, &reply, readings);
                Ok(())
            });
            if sent.is_err() {
                readings.offer(object, reading);
            }
        }
        sent
    }

    /// Reads a reply of one line, as all replies to `TSET` are.
    fn reply(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.stream).take(REPLY_MAX).read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if line.is_empty() => Err(io::Error::other("the server has ended the connection")),
            None => Err(io::Error::other("this is no server that speaks RESP")),
        }
    }
}

/// Appends a command, as an array of bulk strings.
fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Counts the outcome of a reading.
fn note(object: &str, reply: &str, readings: &Readings) {
    if reply.starts_with('+') {
        readings.count(|counts| counts.written += 1);
    } else if reply.starts_with('$') || reply.starts_with('_') {
        readings.count(|counts| counts.older += 1);
    } else if reply.starts_with("-LATE") || reply.starts_with("-UNKNOWN") {
        readings.count(|counts| counts.late += 1);
    } else {
        readings.refuse(format_args!("{object}: the server answers {reply}"));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener};

    use super::*;
    use crate::readings::Counts;

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = Vec::new();
        command(&mut out, &[b"TSET", b"pose", b"a\r\nb", b"AGE", b"12"]);
        assert_eq!(
            out,
            b"*5\r\n$4\r\nTSET\r\n$4\r\npose\r\n$4\r\na\r\nb\r\n$3\r\nAGE\r\n$2\r\n12\r\n"
        );
    }

    #[test]
    fn each_reply_is_an_outcome_and_readings_without_one_wait_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let serves = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The connection ends before the last reply.
            let replies = "+OK\r\n$-1\r\n-LATE reason=expired\r\n-UNKNOWN 1.2\r\n-ERR no\r\n";
            stream.write_all(replies.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            io::copy(&mut stream, &mut io::sink()).unwrap();
        });
        let readings = Readings::default();
        for object in 0..6 {
            let (value, age, came) = (b"1".to_vec(), Duration::ZERO, Instant::now());
            readings.offer(object.to_string(), Reading { value, age, came });
        }
        let mut connection = Connection::open(&server).unwrap();
        let error = connection.write(readings.take(), &readings).unwrap_err();
        assert!(error.to_string().contains("ended"), "{error}");
        let expected = Counts {
            written: 1,
            older: 1,
            late: 2,
            refused: 1,
            ..Counts::default()
        };
        assert_eq!(readings.counts(), expected);
        assert_eq!(readings.take().into_keys().collect::<Vec<_>>(), ["5"]);
        drop(connection);
        serves.join().unwrap();
    }
}
