//! Offers of readings: into their slots, or into the queue of transaction mode; see [`sensors`](crate::sensors).

use punctual_os::Os;
use punctual_units::{ObjectId, SensorId, Seq, Time};

use crate::engine::Engine;
use crate::lanes::Lane;
use crate::sensors::{Offer, State};
use crate::store::Store;
use crate::temporal::{Installation, Sample, Slot, ahead};
use crate::updates::{OfferError, Receipt};
use crate::watch::WakeMask;
use crate::{StoreError, UpdateMode};

/// A reading on its way into the store.
pub(crate) struct OfferedReading<'v> {
    pub sensor: SensorId,
    /// `None`: the next number.
    pub seq: Option<Seq>,
    /// Instant of the reading; `None`: now.
    pub sampled_at: Option<Time>,
    pub value: &'v [u8],
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Decides on update number `seq` of `sensor`, sampled at `sampled_at`. If it is admitted, it is in its slot when
    /// this returns; in transaction mode it waits in the queue. Sensor i feeds object i. From any number of threads,
    /// which meet only where their sensors share one of 64 locks (lanes); while the knob sheds, all share one mutex.
    /// Allocates no memory and touches no disk.
    ///
    /// # Errors
    /// [`StoreError::Offer`]: nothing has changed, the update does not count.
    pub fn offer(&self, sensor: SensorId, seq: Seq, sampled_at: Time, value: &[u8]) -> Result<Receipt, StoreError> {
        self.take_in(Some(seq), sensor, Some(sampled_at), value)
    }

    /// Decides on the next reading of `sensor`, which gets the next number here, and the present time as its sampling
    /// instant unless the caller passes `sampled_at`. For live sensors: any thread, at any rate.
    ///
    /// # Errors
    /// [`StoreError::Offer`]: nothing has changed, the reading does not count.
    pub fn offer_next(&self, sensor: SensorId, sampled_at: Option<Time>, value: &[u8]) -> Result<Receipt, StoreError> {
        self.take_in(None, sensor, sampled_at, value)
    }

    #[inline]
    fn take_in(
        &self,
        seq: Option<Seq>,
        sensor: SensorId,
        sampled_at: Option<Time>,
        value: &[u8],
    ) -> Result<Receipt, StoreError> {
        let reading = OfferedReading {
            sensor,
            seq,
            sampled_at,
            value,
        };
        let (now, difference) = ahead(&self.os);
        match self.install_in_lane(&reading, now, difference) {
            Some(receipt) => receipt,
            None => self.offer_in_order([reading], None).map(|admitted| match admitted {
                0 => Receipt::Shed,
                _ => Receipt::Admitted,
            }),
        }
    }

    /// Offers many updates, each as [`offer`](Store::offer) does, decided at `now`; later, if another offer was decided
    /// later already. Returns how many were admitted. For a feeder of a hundred thousand updates per second and more:
    /// where the mutex of all sensors is needed, it is held once, and transactions wait meanwhile, so offer some dozens
    /// at most. No code of the caller runs within the mutex, where a call of the store would wait for itself.
    ///
    /// # Errors
    /// [`StoreError::Offer`] for the first update that is refused: those before it count, the others do not.
    pub fn offer_together(&self, offers: &[Offer<'_>], now: Time) -> Result<usize, StoreError> {
        let readings = offers.iter().map(|offer| OfferedReading {
            sensor: offer.sensor,
            seq: Some(offer.seq),
            sampled_at: Some(offer.sampled_at),
            value: offer.value,
        });
        let (_, difference) = ahead(&self.os);
        for (installed, reading) in readings.clone().enumerate() {
            match self.install_in_lane(&reading, now, difference) {
                Some(receipt) => receipt?,
                None => return Ok(installed + self.offer_in_order(readings.skip(installed), Some(now))?),
            };
        }
        Ok(offers.len())
    }

    /// Installs a reading of an open lane; `None` where it must be [offered in order](Self::offer_in_order).
    #[inline]
    fn install_in_lane(
        &self,
        reading: &OfferedReading<'_>,
        now: Time,
        difference: i64,
    ) -> Option<Result<Receipt, StoreError>> {
        let mut lane = self.sensors.lanes.lock(reading.sensor.0);
        if !lane.open || self.watches.any() {
            return None;
        }
        let last = lane.account(reading.sensor)?.since.last;
        let (sampled_at, now) = (reading.sampled_at.unwrap_or(now), lane.latest(now));
        let sampled_at = sampled_at.min(now);
        let aged = lane.clock.since_boot(sampled_at, difference)?;
        let slot = self.objects.slot(ObjectId(reading.sensor.0))?;
        let installed = self.install_open(&mut lane, reading, last, slot, (sampled_at, Some(aged)), now);
        Some(installed.map(|_| Receipt::Admitted).map_err(StoreError::from))
    }

    /// Installs a reading of an open lane, sampled at an instant of the clock of deadlines and of that of ages.
    #[inline]
    fn install_open(
        &self,
        lane: &mut Lane,
        reading: &OfferedReading<'_>,
        last: Seq,
        slot: &Slot,
        (sampled_at, aged): (Time, Option<Time>),
        now: Time,
    ) -> Result<(Sample, Installation), OfferError> {
        let &OfferedReading { sensor, value, .. } = reading;
        let seq = reading.seq.unwrap_or(Seq(last.0.saturating_add(1)));
        if seq <= last {
            return Err(OfferError::SeqNotIncreasing { sensor, seq, last });
        }
        let (len, max) = (value.len(), slot.max_len() as u32);
        if len > slot.max_len() {
            return Err(OfferError::ValueTooLong { sensor, seq, len, max });
        }
        lane.offered(sensor, seq);
        let sample = Sample { seq, sampled_at: aged };
        let installation = self.install_one(ObjectId(sensor.0), slot, sample, value);
        if installation == Installation::Installed {
            self.objects.note(ObjectId(sensor.0), sample);
        }
        lane.landed(sensor, seq, installation == Installation::Installed, sampled_at, now);
        Ok((sample, installation))
    }

    /// Offers readings within the mutex of all sensors, in their order; returns how many were admitted.
    fn offer_in_order<'v>(
        &self,
        readings: impl IntoIterator<Item = OfferedReading<'v>>,
        decided: Option<Time>,
    ) -> Result<usize, StoreError> {
        let (offered, woken) = self.sensors.with(|state| {
            self.sensors.notice_suspension(state, &self.os);
            let (mut admitted, mut woken) = (0, WakeMask::default());
            // Within the mutex, because instants handed to the updates must not run backwards.
            let now = decided.unwrap_or_else(|| self.os.now());
            let offered = readings.into_iter().try_for_each(|reading| {
                admitted += usize::from(self.offer_one(state, &reading, now, &mut woken)? == Receipt::Admitted);
                Ok(())
            });
            (offered.map(|()| admitted), woken)
        });
        self.watches.wake(woken);
        offered
    }

    fn offer_one(
        &self,
        state: &mut State,
        reading: &OfferedReading<'_>,
        now: Time,
        woken: &mut WakeMask,
    ) -> Result<Receipt, StoreError> {
        let &OfferedReading { sensor, value, .. } = reading;
        if self.update_mode == UpdateMode::Transaction {
            let seq = match reading.seq {
                Some(seq) => seq,
                None => Seq(state.updates.last(sensor)?.0.saturating_add(1)),
            };
            return state.offer(sensor, seq, reading.sampled_at.unwrap_or(now), value, now);
        }
        let object = ObjectId(sensor.0);
        let mut lane = self.sensors.lanes.lock(sensor.0);
        let known = lane.account(sensor).map(|account| account.since.last);
        let Some((last, slot)) = known.zip(self.objects.slot(object)) else {
            state.updates.last(sensor)?;
            unreachable!("each sensor of a memory-first store has an account and a slot");
        };
        let (sample, installation) = if lane.open {
            let (sampled_at, now) = (reading.sampled_at.unwrap_or(now), lane.latest(now));
            let sampled_at = sampled_at.min(now);
            let instants = (sampled_at, state.suspensions.since_boot(sampled_at));
            self.install_open(&mut lane, reading, last, slot, instants, now)?
        } else {
            let seq = reading.seq.unwrap_or(Seq(last.0.saturating_add(1)));
            let admitted = state.offer_directly(reading, seq, now)?;
            lane.set_last(sensor, seq);
            let Some(pending) = admitted else {
                return Ok(Receipt::Shed);
            };
            let sampled_at = state.suspensions.since_boot(pending.sampled_at);
            let sample = Sample { seq, sampled_at };
            let installation = self.install_one(object, slot, sample, value);
            state.account(&pending, installation, now);
            (sample, installation)
        };
        *woken = woken.and(self.note_installed(object, sample, installation));
        Ok(Receipt::Admitted)
    }
}
