//! Exclusive cores of the simulated machine are lent as those of a real one: by the same policy, from the same events.
//!
//! On Linux each task of such a core notifies the policy when it leaves and is called. Here the run checks after every
//! event of the machine which tasks have a job. Leases reach the machine by its knobs ([`KnobId::Lease`]).

use punctual_cores::{TenantEvent, Tenants, Usage};
use punctual_loop::{DeciderEvent, DeciderSetup, EventLog};
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_runtime::report::LendingReport;
use punctual_sim::{LENDING_COSTS, Simulation};
use punctual_units::{Clock, CoreId, Nanos, Share, Time};

/// How long a window of [`Usage`] is; as on Linux.
const WINDOW: Nanos = Nanos::from_millis(250);
/// Decisions about a core that a log holds; as on Linux.
const LOGGED_MAX: usize = 1 << 16;

/// The exclusive cores of a run.
pub(super) struct Leases {
    homes: Vec<Home>,
    /// Time of the next check whether lent cores are used.
    look: Time,
}

/// An exclusive core, with its tasks and leases.
struct Home {
    core: CoreId,
    occupants: Vec<Occupant>,
    tenants: Tenants,
    usage: Usage,
    useful: bool,
    log: EventLog,
    account: LendingStats,
}

/// A task of the core.
struct Occupant {
    /// Index among the machine's runners.
    runner: usize,
    /// State that was reported last.
    reported: OccupantState,
}

/// State of a task as reported to the core's tenancy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OccupantState {
    Working,
    /// Away until its next release.
    Away(Time),
    Ended,
}

/// Statistics of lending a core.
#[derive(Default)]
struct LendingStats {
    leases: u64,
    late: u64,
    /// Start of the lease in force.
    since: Option<Time>,
    /// Time lent in all earlier leases.
    lent: Nanos,
    /// Part of `lent` in which guests worked.
    used: Nanos,
    /// Working time of the core when the lease began.
    worked: Nanos,
    /// Time lent and time used in all, at the last check.
    looked: (Nanos, Nanos),
}

impl Leases {
    /// Creates the leases of these cores.
    pub fn of(cores: &[CoreId], machine: &Simulation, logged: bool) -> Leases {
        let home = |core: &CoreId| Home::new(*core, machine.tenants(*core), if logged { LOGGED_MAX } else { 0 });
        Leases {
            homes: cores.iter().map(home).collect(),
            look: machine.now() + WINDOW,
        }
    }

    /// Reports changes to the policy, and its decisions to the machine.
    pub fn step(&mut self, machine: &mut Simulation) {
        let now = machine.now();
        let look = now >= self.look;
        for home in &mut self.homes {
            home.step(machine);
            if look {
                home.look(machine);
            }
        }
        if look {
            self.look = now + WINDOW;
        }
    }

    /// Time of the next check, if the machine has no event before.
    pub fn next(&self, now: Time) -> Time {
        let due = self.homes.iter().filter_map(|home| home.next(now)).min();
        match self.homes.is_empty() {
            true => Time::MAX,
            false => due.unwrap_or(Time::MAX).min(self.look),
        }
    }

    /// Reports on lending, and the decisions.
    pub fn finish(self, machine: &Simulation) -> (Vec<LendingReport>, Vec<EventLog>) {
        let reports = self.homes.iter().map(|home| home.report(machine)).collect();
        (reports, self.homes.into_iter().map(|home| home.log).collect())
    }
}

impl Home {
    fn new(core: CoreId, runners: Vec<usize>, logged_max: usize) -> Home {
        let occupant = |runner| Occupant {
            runner,
            reported: OccupantState::Working,
        };
        Home {
            core,
            tenants: Tenants::new(runners.len(), LENDING_COSTS),
            log: EventLog::of(
                DeciderSetup::Lending {
                    core,
                    tenants: runners.len(),
                    costs: LENDING_COSTS,
                },
                logged_max,
            ),
            occupants: runners.into_iter().map(occupant).collect(),
            usage: Usage::default(),
            useful: true,
            account: LendingStats::default(),
        }
    }

    fn step(&mut self, machine: &mut Simulation) {
        let now = machine.now();
        for tenant in 0..self.occupants.len() {
            let Occupant { runner, reported } = self.occupants[tenant];
            let event = match (reported, machine.rests_until(runner)) {
                (OccupantState::Working, Some(Time::MAX)) => (OccupantState::Ended, TenantEvent::Ended),
                (OccupantState::Working, Some(release)) if release > now => {
                    let costs = LENDING_COSTS;
                    (OccupantState::Away(release), TenantEvent::Leaves { release, costs })
                }
                (OccupantState::Away(release), _) if self.tenants.call_at(release) <= now => {
                    let late = self.tenants.is_lent() && now + LENDING_COSTS.take_back > release;
                    self.account.late += u64::from(late);
                    (OccupantState::Working, TenantEvent::Called)
                }
                _ => continue,
            };
            self.tell(tenant, event, machine);
        }
    }

    fn tell(&mut self, tenant: usize, (reported, event): (OccupantState, TenantEvent), machine: &mut Simulation) {
        self.occupants[tenant].reported = reported;
        if self.decide(tenant, event, machine.now()) {
            let lend = event != TenantEvent::Called;
            machine.apply(&Plan::of(KnobId::Lease(self.core), Value::Lent(lend)));
            self.account.turned(lend, worked(self.core, machine), machine.now());
        }
    }

    /// Decides, and logs the decision where there is room.
    fn decide(&mut self, tenant: usize, event: TenantEvent, now: Time) -> bool {
        let answer = self.tenants.step(tenant, event, now);
        self.log.note(now, DeciderEvent::Lending(tenant, event), answer);
        answer
    }

    /// Checks whether the core was used in the window that is over; that decides on the next leases.
    fn look(&mut self, machine: &Simulation) {
        let (lent, used) = self.account.so_far(worked(self.core, machine), machine.now());
        let (lent_before, used_before) = std::mem::replace(&mut self.account.looked, (lent, used));
        let (lent, used) = (lent - lent_before, used - used_before);
        let useful = self.usage.step(lent, lent - used);
        if useful != self.useful {
            self.useful = useful;
            self.decide(0, TenantEvent::Useful(useful), machine.now());
        }
    }

    /// Time at which the first of its tasks is to be called; `None` if none is away.
    fn next(&self, now: Time) -> Option<Time> {
        let call = |occupant: &Occupant| match occupant.reported {
            OccupantState::Away(release) => Some(self.tenants.call_at(release)),
            OccupantState::Working | OccupantState::Ended => None,
        };
        self.occupants.iter().filter_map(call).min().map(|call| call.max(now))
    }

    fn report(&self, machine: &Simulation) -> LendingReport {
        let (lent, used) = self.account.so_far(worked(self.core, machine), machine.now());
        LendingReport {
            core: self.core,
            leases: self.account.leases,
            lent_s: lent.as_secs_f64(),
            used_share: (lent > Nanos::ZERO).then(|| Share::clamped(used.ratio(lent)).get()),
            take_back_us: None,
            late: self.account.late,
        }
    }
}

impl LendingStats {
    /// Counts that the core is lent or taken back now; `worked` is its working time in all.
    fn turned(&mut self, lend: bool, worked: Nanos, now: Time) {
        (self.lent, self.used) = self.so_far(worked, now);
        self.since = lend.then_some(now);
        self.worked = worked;
        self.leases += u64::from(lend);
    }

    /// Time lent in all, and the part of it that was used.
    fn so_far(&self, worked: Nanos, now: Time) -> (Nanos, Nanos) {
        match self.since {
            Some(since) => (self.lent + now.since(since), self.used + (worked - self.worked)),
            None => (self.lent, self.used),
        }
    }
}

/// Working time of this core since the start. While it is lent, only guests work on it.
fn worked(core: CoreId, machine: &Simulation) -> Nanos {
    machine.core_times()[core.index()].working
}
