#!/usr/bin/python3
"""The radio's graph in GNU Radio, beside `punctual-lab radio`: frames per second, and samples lost by replacing a block.

    cargo build --release -p punctual-lab
    /usr/bin/python3 lab/radio/peers/gnuradio_fm.py target/release/punctual-lab

Needs GNU Radio (Debian: apt-get install gnuradio) and the program zstd. Both read lab/radio/data/station.cu8.zst
and have the same stages: a channel filter of 81 taps, a discriminator, de-emphasis, a filter of 500 taps that keeps
every tenth sample, four bands of 401 taps, and their sum. A frame is 1 ms:
250 IQ samples. Runs are interleaved.
"""

import json
import math
import subprocess
import sys
import tempfile
import time

from gnuradio import analog, blocks, filter as filters, gr
from gnuradio.filter import firdes

RATE = 250_000
FRAME = 250
DECIMATION = 10
ROUNDS = 3
# How often the recording is read at full speed, and for how long it is played at its own.
TIMES = 5
SECONDS = 6
REPLACED_EVERY = 0.25


class Radio(gr.top_block):
    def __init__(self, path, repeat, real_time):
        super().__init__("radio")
        source = blocks.file_source(gr.sizeof_char, path, repeat)
        numbers = blocks.uchar_to_float()
        centred = blocks.add_const_ff(-127.5)
        pairs = blocks.deinterleave(gr.sizeof_float, 1)
        complexes = blocks.float_to_complex()
        channel = filters.fir_filter_ccf(1, taps(81, lambda: firdes.low_pass(1, RATE, 95_000, 10_000)))
        discriminator = analog.quadrature_demod_cf(RATE / (2 * math.pi * 75_000))
        emphasis = analog.fm_deemph(RATE, tau=50e-6)
        sound = filters.fir_filter_fff(DECIMATION, taps(500, lambda: firdes.low_pass(1, RATE, 11_500, 1_500)))
        self.demodulated = sound
        self.sum = blocks.add_ff()
        self.bands = [self.band(number) for number in range(4)]
        self.taken = blocks.vector_sink_f() if real_time else blocks.null_sink(gr.sizeof_float)
        chain = [source]
        if real_time:
            chain.append(blocks.throttle(gr.sizeof_char, 2 * RATE))
        self.connect(*chain, numbers, centred, pairs)
        self.connect((pairs, 0), (complexes, 0))
        self.connect((pairs, 1), (complexes, 1))
        self.connect(complexes, channel, discriminator, emphasis, sound)
        for number, band in enumerate(self.bands):
            self.connect(sound, band, (self.sum, number))
        self.connect(self.sum, self.taken)
        if real_time:
            # Its items tell how many came, whatever is replaced behind it.
            self.came = blocks.vector_sink_f()
            self.connect((pairs, 0), self.came)

    @staticmethod
    def band(number):
        edges = [200, 545, 1483, 4040, 11_000]
        low, high = edges[number], edges[number + 1]
        design = lambda: firdes.band_pass(1, RATE / DECIMATION, low, high, 200)
        return filters.fir_filter_fff(1, taps(401, design))

    def replace(self, number):
        """Puts a new filter in place of a band while the graph runs."""
        old, new = self.bands[number], self.band(number)
        self.lock()
        self.disconnect(self.demodulated, old)
        self.disconnect(old, (self.sum, number))
        self.connect(self.demodulated, new, (self.sum, number))
        self.bands[number] = new
        self.unlock()


def taps(count, design):
    """So many taps: what a design has more is cut off, what it has less is zero. Only how many there are takes time."""
    designed = list(design())[:count]
    return designed + [0.0] * (count - len(designed))


def full_speed(path, samples):
    radio = Radio(path, False, False)
    begin = time.monotonic()
    radio.run()
    return samples / FRAME / (time.monotonic() - begin)


def played(path, replaces):
    """Plays at the recording's own speed; a band is replaced again and again, or none. Answers IQ samples that came in, those
    whose sound did not come out, and how often a block was replaced."""
    radio = Radio(path, True, True)
    radio.start()
    begin, count = time.monotonic(), 0
    while time.monotonic() - begin < SECONDS:
        time.sleep(REPLACED_EVERY)
        if replaces:
            radio.replace(count % 4)
            count += 1
    radio.stop()
    radio.wait()
    came, gone = len(radio.came.data()), len(radio.taken.data())
    return came, came - gone * DECIMATION, count


def ours(program, arguments):
    output = subprocess.run([program, "radio", *arguments, "--json", "-"], capture_output=True, check=True)
    return json.loads(output.stdout)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/station.cu8"
        plain = subprocess.run(["zstd", "-dc", "lab/radio/data/station.cu8.zst"], capture_output=True, check=True).stdout
        with open(path, "wb") as file:
            file.write(plain * TIMES)
        samples = len(plain) * TIMES // 2
        for _ in range(ROUNDS):
            theirs = full_speed(path, samples)
            # The kernel places GNU Radio's threads, the policy our stages.
            placed = ["--rate", "max", "--policy", "balance"]
            report = ours(program, [path, *placed, "--frames", str(samples // FRAME)])
            print(f"frames/s at full speed: GNU Radio {theirs:,.0f}, punctual {report['frames_per_s']:,.0f}")
        # What is under way at the end is no sound yet, in either.
        for replaces in [False, True]:
            came, lost, count = played(path, replaces)
            print(f"GNU Radio: {count} blocks replaced, {lost} of {came} IQ samples lost ({1e3 * lost / RATE:.1f} ms)")
        upgrades = ["--upgrade-at", "500ms", "--frames", str(SECONDS * RATE // FRAME)]
        report = ours(program, [path, *upgrades])
        print(
            f"punctual: {report['upgrades']} stages replaced, {report['frames_lost']} of {report['frames_offered']} "
            f"frames lost, {report['frames_late']} late"
        )


main()
