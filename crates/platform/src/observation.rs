//! Which threads of programs that report nothing do a task's jobs, and in which system call they wait for the next one.

punctual_units::named! {
    /// System call in which a thread waits for its next release, by its name in files and reports.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum WaitCall by name {
        /// `clock_nanosleep` or `nanosleep`, for an instant or for a span.
        ClockNanosleep = "clock_nanosleep",
        /// `epoll_wait` and its variants.
        EpollWait = "epoll_wait",
        /// `read` of a timerfd; no other `read` counts.
        TimerRead = "read",
        /// `futex`, where it waits for a word, with or without a time limit.
        Futex = "futex",
        /// `poll`, `select` and their variants.
        Poll = "poll",
    }
}

/// How a task is observed whose threads report nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The call that ends a job, and by its return begins the next; `None`: the one in which a thread waits longest
    /// while it is watched for a second.
    pub call: Option<WaitCall>,
    /// The threads that do the task's jobs.
    pub threads: ThreadSelector,
}

/// Threads of other programs; what is `None` is not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadSelector {
    /// Name of the program, as `/proc/PID/comm` has it: the kernel keeps 15 bytes.
    pub program: Option<String>,
    /// Name of the thread, likewise; `None`: a program's first thread.
    pub thread: Option<String>,
    /// Control group as `/proc/PID/cgroup` names it, or its last part, such as a unit of systemd.
    pub group: Option<String>,
}

impl ThreadSelector {
    /// Whether any thread is asked for.
    pub fn is_empty(&self) -> bool {
        *self == ThreadSelector::default()
    }

    /// Whether a program's name and its `/proc/PID/cgroup` are asked for.
    pub fn has_program(&self, name: &str, groups: &str) -> bool {
        let is_in = |asked: &String| {
            let paths = { groups.lines() }.filter_map(|line| line.splitn(3, ':').nth(2));
            let mut paths = paths.map(|path| if asked.starts_with('/') { path } else { last(path) });
            paths.any(|path| path == asked)
        };
        self.program.as_deref().is_none_or(|asked| is_kept_as(asked, name)) && self.group.as_ref().is_none_or(is_in)
    }

    /// Whether a thread of such a program is asked for, by its name; `is_first`: it has the process's number.
    pub fn has_thread(&self, name: &str, is_first: bool) -> bool {
        self.thread.as_deref().map_or(is_first, |asked| is_kept_as(asked, name))
    }
}

/// Whether the kernel keeps `asked` as `name`.
fn is_kept_as(asked: &str, name: &str) -> bool {
    const KEPT: usize = 15;
    asked == name || name.len() == KEPT && asked.as_bytes().starts_with(name.as_bytes())
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_selected_by_program_thread_and_group() {
        let text = |text: &str| Some(text.to_owned());
        let groups = "4:cpu:/robot\n0::/system.slice/robot.service";
        let program = |program: Option<String>, group: Option<String>| ThreadSelector {
            program,
            group,
            thread: None,
        };
        for (group, is_in) in [
            ("robot.service", true),
            ("/robot", true),
            ("/system.slice", false),
            ("a", false),
        ] {
            assert_eq!(program(None, text(group)).has_program("x", groups), is_in, "{group}");
        }
        let long = program(text("robot-controller"), None);
        assert!(long.has_program("robot-controlle", "") && !long.has_program("robot", ""));
        assert!(!program(text("robot"), text("a")).has_program("robot", groups));
        let first = ThreadSelector::default();
        assert!(first.is_empty() && first.has_thread("any", true) && !first.has_thread("any", false));
        let named = ThreadSelector {
            thread: text("control"),
            ..first
        };
        assert!(named.has_thread("control", false) && !named.has_thread("log", true));
        let numbers = WaitCall::NAMED.map(|(_, call)| call as usize);
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
    }
}
