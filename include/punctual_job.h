/* Reports a program's jobs to `punctual attach`: two calls around each job, in C11 or C++17, on Linux.
 *
 *     struct punctual_job *job = punctual_job_open("control", 5000000, 10000000);
 *     for (;;) {
 *         wait_for_the_next_period();
 *         punctual_job_begin(job);
 *         control();
 *         punctual_job_end(job);
 *     }
 *
 * While no `punctual attach` runs, a call costs a load and a branch; one that starts later, or again, finds the program
 * at its next job. No call waits, locks or allocates; without a report of the jobs that come faster than they are read,
 * the program goes on. docs/guide/attach.md describes the file of `punctual attach` and the formats.
 *
 * A job and its calls belong to one thread. A child of fork() reports nothing by its parent's job: it opens its own. The
 * functions take NULL, for which they do nothing, so that a program may ignore that punctual_job_open failed.
 */
#ifndef PUNCTUAL_JOB_H
#define PUNCTUAL_JOB_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first header (cc -D_GNU_SOURCE): memfd_create is declared by it"
#endif

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PUNCTUAL_JOB_VERSION 1
#define PUNCTUAL_JOB_RECORDS 120
#define PUNCTUAL_JOB_BYTES 4096

/* The ring that the runtime reads, and the page by which it is found: docs/guide/attach.md. */
struct punctual_job_ring {
    char magic[8];
    uint32_t version, bytes;
    int32_t process, thread;
    uint64_t deadline, period;
    char name[64];
    uint8_t reserved[24];
    uint64_t head, open_begun, open_released, number, dropped, misused;
    uint32_t closed;
    uint8_t reserved_too[12];
    uint64_t tail;
    uint8_t reserved_last[56];
    struct {
        uint64_t number, released, begun, ended;
    } records[PUNCTUAL_JOB_RECORDS];
};

struct punctual_job_page {
    char magic[8];
    uint32_t version, epoch, last_epoch;
    int32_t listener;
};

/* What a program holds of a task. The kernel zeroes it in a child of fork(). */
struct punctual_job {
    const struct punctual_job_page *page;
    struct punctual_job_ring *ring;
    uint32_t epoch;
    int file;
    struct sockaddr_un socket;
};

static inline uint64_t punctual_job_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The folder of this user's reports, as `punctual` chooses it. */
static inline int punctual_job_folder(char *path, size_t room) {
    const char *named = getenv("PUNCTUAL_RUN_DIR"), *temporary = getenv("TMPDIR");
    int length;
    if (named && *named)
        length = snprintf(path, room, "%s", named);
    else if (geteuid() == 0 && (access("/run/punctual", F_OK) == 0 || access("/run", W_OK) == 0))
        length = snprintf(path, room, "/run/punctual");
    else if (geteuid() != 0 && (named = getenv("XDG_RUNTIME_DIR")) && *named)
        length = snprintf(path, room, "%s/punctual", named);
    else
        length = snprintf(path, room, "%s/punctual-%u", temporary && *temporary ? temporary : "/tmp",
                          (unsigned)geteuid());
    return length > 0 && (size_t)length < room ? 0 : -1;
}

static inline void *punctual_job_map(int protection, int flags, int file) {
    void *address = mmap(NULL, PUNCTUAL_JOB_BYTES, protection, flags, file, 0);
    return address == MAP_FAILED ? NULL : address;
}

/* Whether a file is this user's or the superuser's: another user could take its memory away from this program. */
static inline int punctual_job_is_safe(const struct stat *found, mode_t kind) {
    return (found->st_mode & S_IFMT) == kind && (found->st_uid == geteuid() || found->st_uid == 0);
}

static inline const struct punctual_job_page *punctual_job_page_of(const char *folder) {
    char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
    struct stat found;
    void *page = NULL;
    int why = 0, flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, file;
    snprintf(path, sizeof path, "%s/jobs", folder);
    (void)!mkdir(folder, 0755);
    if (lstat(folder, &found) != 0)
        return NULL;
    if (!punctual_job_is_safe(&found, S_IFDIR)) {
        errno = EPERM;
        return NULL;
    }
    file = open(path, O_RDWR | O_CREAT | flags, 0644);
    if (file >= 0) /* with memory: touching a hole in a full file system ends a program */
        why = posix_fallocate(file, 0, PUNCTUAL_JOB_BYTES);
    else
        file = open(path, O_RDONLY | flags);
    if (file < 0)
        return NULL;
    if (why == 0 && fstat(file, &found) == 0
        && (!punctual_job_is_safe(&found, S_IFREG) || found.st_size < PUNCTUAL_JOB_BYTES))
        why = EPERM;
    if (why == 0)
        page = punctual_job_map(PROT_READ, MAP_SHARED, file);
    close(file);
    if (why != 0)
        errno = why;
    return (const struct punctual_job_page *)page;
}

/* Opens a task for the calling thread. `name` has 1 to 63 bytes. `deadline` and `period` are in nanoseconds, or 0 where
 * the file of `punctual attach` says so: the time from a job's release to its deadline, and the time between two
 * releases, which come at such steps. NULL and errno if the task cannot be reported. */
static inline struct punctual_job *punctual_job_open(const char *name, uint64_t deadline, uint64_t period) {
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof "/jobs.socket"];
    struct punctual_job *job;
    size_t length = name ? strnlen(name, 64) : 0;
    if (length == 0 || length > 63 || punctual_job_folder(folder, sizeof folder) != 0) {
        errno = length == 0 || length > 63 ? EINVAL : ENAMETOOLONG;
        return NULL;
    }
    job = (struct punctual_job *)punctual_job_map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (job == NULL)
        return NULL;
    job->file = memfd_create("punctual jobs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (job->file >= 0 && madvise(job, PUNCTUAL_JOB_BYTES, MADV_WIPEONFORK) == 0
        && ftruncate(job->file, PUNCTUAL_JOB_BYTES) == 0
        && fcntl(job->file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
        job->ring = (struct punctual_job_ring *)punctual_job_map(PROT_READ | PROT_WRITE, MAP_SHARED, job->file);
        job->page = punctual_job_page_of(folder);
    }
    if (job->ring == NULL || job->page == NULL) {
        int why = errno;
        if (job->ring)
            munmap(job->ring, PUNCTUAL_JOB_BYTES);
        if (job->file >= 0)
            close(job->file);
        munmap(job, PUNCTUAL_JOB_BYTES);
        errno = why;
        return NULL;
    }
    memcpy(job->ring->magic, "punctjob", 8);
    job->ring->version = PUNCTUAL_JOB_VERSION;
    job->ring->bytes = PUNCTUAL_JOB_BYTES;
    job->ring->process = getpid();
    job->ring->deadline = deadline;
    job->ring->period = period;
    memcpy(job->ring->name, name, length);
    job->socket.sun_family = AF_UNIX;
    snprintf(job->socket.sun_path, sizeof job->socket.sun_path, "%s/jobs.socket", folder);
    return job;
}

/* Hands the ring over to a runtime that has begun to listen; 0 if its queue is full or descriptors are short, and the
 * next job tries again. */
static inline int punctual_job_hand_over(struct punctual_job *job, uint32_t epoch) {
    char text[4] = {'r', 'i', 'n', 'g'};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part;
    struct msghdr message;
    struct cmsghdr *rights;
    ssize_t sent;
    int plug = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    job->ring->thread = (int32_t)syscall(SYS_gettid);
    job->ring->open_begun = job->ring->dropped = job->ring->misused = 0;
    job->ring->tail = job->ring->head; /* no runtime reads the ring now */
    memset(&control, 0, sizeof control);
    memset(&message, 0, sizeof message);
    part.iov_base = text;
    part.iov_len = sizeof text;
    message.msg_name = &job->socket;
    message.msg_namelen = sizeof job->socket;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.room;
    message.msg_controllen = sizeof control.room;
    rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &job->file, sizeof(int));
    sent = sendmsg(plug, &message, MSG_NOSIGNAL);
    int why = errno;
    close(plug);
    if (sent < 0 && why != ENOENT && why != ECONNREFUSED && why != EACCES)
        return 0;
    job->epoch = epoch; /* it has died, or refuses this user: the next runtime is tried */
    return 1;
}

static inline void punctual_job_begin_for(struct punctual_job *job, uint32_t epoch, uint64_t released) {
    struct punctual_job_ring *ring = job->ring;
    if (epoch != job->epoch && !punctual_job_hand_over(job, epoch))
        return;
    if (ring->open_begun != 0) {
        ring->misused++;
        return;
    }
    ring->open_released = released;
    __atomic_store_n(&ring->open_begun, punctual_job_now(), __ATOMIC_RELEASE);
}

/* Begins a job that was released earlier, at an instant of CLOCK_MONOTONIC in nanoseconds: the one for which a timer was
 * set, for example. 0: now, or as the period says. */
static inline void punctual_job_begin_released(struct punctual_job *job, uint64_t released) {
    uint32_t epoch;
    if (job && job->page && (epoch = __atomic_load_n(&job->page->epoch, __ATOMIC_RELAXED)) != 0)
        punctual_job_begin_for(job, epoch, released);
}

/* Begins a job. */
static inline void punctual_job_begin(struct punctual_job *job) {
    punctual_job_begin_released(job, 0);
}

static inline void punctual_job_end_now(struct punctual_job_ring *ring) {
    uint64_t head = ring->head;
    if (ring->open_begun == 0) {
        ring->misused++;
        return;
    }
    if (head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) < PUNCTUAL_JOB_RECORDS) {
        ring->records[head % PUNCTUAL_JOB_RECORDS].number = ring->number;
        ring->records[head % PUNCTUAL_JOB_RECORDS].released = ring->open_released;
        ring->records[head % PUNCTUAL_JOB_RECORDS].begun = ring->open_begun;
        ring->records[head % PUNCTUAL_JOB_RECORDS].ended = punctual_job_now();
        __atomic_store_n(&ring->head, head + 1, __ATOMIC_RELEASE);
    } else {
        ring->dropped++;
    }
    ring->number++;
    __atomic_store_n(&ring->open_begun, 0, __ATOMIC_RELEASE);
}

/* Ends the job under way. */
static inline void punctual_job_end(struct punctual_job *job) {
    if (job && job->page && __atomic_load_n(&job->page->epoch, __ATOMIC_RELAXED) != 0)
        punctual_job_end_now(job->ring);
}

/* Closes the task. */
static inline void punctual_job_close(struct punctual_job *job) {
    if (job == NULL || job->page == NULL)
        return;
    __atomic_store_n(&job->ring->closed, 1, __ATOMIC_RELEASE);
    munmap((void *)job->page, PUNCTUAL_JOB_BYTES);
    munmap(job->ring, PUNCTUAL_JOB_BYTES);
    close(job->file);
    munmap(job, PUNCTUAL_JOB_BYTES);
}

#ifdef __cplusplus
/* A job for as long as this lives: punctual_job_guard now(job); */
struct punctual_job_guard {
    explicit punctual_job_guard(struct punctual_job *of) : job(of) { punctual_job_begin(job); }
    ~punctual_job_guard() { punctual_job_end(job); }
    punctual_job_guard(const punctual_job_guard &) = delete;
    punctual_job_guard &operator=(const punctual_job_guard &) = delete;
    struct punctual_job *job;
};
#endif

#endif
