/* A control loop of 50 Hz that reports its jobs, for `punctual attach examples/attach/control.toml`. It knows for which
 * instant its timer was set, so each job says when it was released. Runs for as many seconds as its argument says.
 *
 *     cc -O2 -D_GNU_SOURCE -I include -o control examples/attach/control.c
 */
#include "punctual_job.h"

#define PERIOD 20000000u /* 20 ms */
#define WORK 1000000u    /* 1 ms */

/* Waits until `at`, in nanoseconds of CLOCK_MONOTONIC. */
static void sleep_until(uint64_t at) {
    struct timespec until = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* Stands for the law: uses the processor for 1 ms of the thread's own time. */
static void compute(void) {
    struct timespec now;
    uint64_t used, begun = 0;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        used = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        begun = begun ? begun : used;
    } while (used - begun < WORK);
}

int main(int count, char **arguments) {
    uint64_t now = punctual_job_now(), release = now;
    const uint64_t end = now + (uint64_t)(count > 1 ? atoi(arguments[1]) : 10) * 1000000000u;
    struct punctual_job *job = punctual_job_open("control", 0, PERIOD);
    if (job == NULL)
        perror("going on without reports");
    while ((now = punctual_job_now()) < end) {
        release += ((now - release) / PERIOD + 1) * PERIOD; /* those that have passed are skipped */
        sleep_until(release);
        punctual_job_begin_released(job, release);
        compute();
        punctual_job_end(job);
    }
    punctual_job_close(job);
    return 0;
}
