/* SPDX-License-Identifier: MIT */
/* The holder: steps 1 to 5 of mmp.h, and letting go. */
#include "store/mmp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "store/mmp_parts.h"

struct nvefs_mmp *nvefs_mmp_new(struct nvefs_dev *dev, const struct nvefs_super *sb,
				const struct nvefs_mmp_opts *opts)
{
	struct nvefs_mmp *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->dev = dev;
	m->sb = *sb;
	m->rec.state = opts->state;
	m->rec.interval_ms = sb->mmp_interval_ms;
	if (opts->host)
		snprintf(m->rec.host, sizeof(m->rec.host), "%s", opts->host);
	else if (gethostname(m->rec.host, sizeof(m->rec.host) - 1))
		m->rec.host[0] = '\0';
	snprintf(m->rec.target, sizeof(m->rec.target), "%s", nvefs_dev_identity(dev)->target);
	nvefs_mutex_init(&m->lock);
	nvefs_cond_init(&m->wake);
	nvefs_cond_init(&m->change);
	m->buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	while (m->buf && !m->rec.nonce)
		if (getrandom(&m->rec.nonce, sizeof(m->rec.nonce), 0) != sizeof(m->rec.nonce))
			break;
	if (m->rec.nonce)
		return m;
	nvefs_mmp_free(m);
	return NULL;
}

void nvefs_mmp_free(struct nvefs_mmp *m)
{
	if (!m)
		return;
	nvefs_buf_free(m->buf);
	nvefs_cond_done(&m->change);
	nvefs_cond_done(&m->wake);
	nvefs_mutex_done(&m->lock);
	free(m);
}

int nvefs_mmp_write(struct nvefs_queue *q, const struct nvefs_super *sb, const struct nvefs_mmp_rec *rec,
		    uint16_t type, void *buf)
{
	nvefs_mmp_encode(rec, sb, type, buf);
	nvefs_block_seal(buf);
	return nvefs_queue_write(q, nvefs_mmp_pblk(type), 1, buf, 0);
}

void nvefs_mmp_host_text(const char *host, char *ret, size_t len)
{
	size_t n = 0;

	for (; host[n] && n < len - 1; n++)
		ret[n] = (unsigned char)host[n] < ' ' || host[n] == 127 ? '?' : host[n];
	ret[n] = '\0';
}

/* Is the claim still ours? What cannot be read, or is torn because it is being written, says nothing yet. */
static int check_claim(struct nvefs_mmp *m, struct nvefs_queue *q)
{
	struct nvefs_mmp_rec rec;
	enum nvefs_block_status status;
	char host[72];
	int err = nvefs_queue_read(q, NVEFS_CLAIM_PBLK, 1, m->buf);

	if (err) {
		snprintf(m->why, sizeof(m->why), "multiple mount protection: the claim cannot be read");
		return err;
	}
	status = nvefs_mmp_decode(m->buf, &m->sb, NVEFS_BT_CLAIM, &rec);
	if (status == NVEFS_BLOCK_OK && rec.nonce == m->rec.nonce)
		return 0;
	if (status == NVEFS_BLOCK_OK) {
		nvefs_mmp_host_text(rec.host, host, sizeof(host));
		snprintf(m->why, sizeof(m->why), "multiple mount protection: host '%s' has taken the file system",
			 host);
		return -EBUSY;
	}
	/* Wiped, or of another file system: a new one is being made. */
	snprintf(m->why, sizeof(m->why), "multiple mount protection: the claim is gone: %s",
		 nvefs_block_status_text(status));
	return status == NVEFS_BLOCK_CHECKSUM ? -EUCLEAN : -EBUSY;
}

static void extend(struct nvefs_mmp *m, uint64_t until_ns)
{
	uint64_t old_ns = m->lease_ns, now_ns = nvefs_boot_ns();

	nvefs_mutex_lock(&m->lock);
	__atomic_store_n(&m->lease_ns, until_ns, __ATOMIC_RELEASE);
	nvefs_dev_allow_writes(m->dev, until_ns);
	nvefs_cond_broadcast(&m->change);
	nvefs_mutex_unlock(&m->lock);
	m->failing = false;
	if (!old_ns || now_ns < old_ns)
		return;
	__atomic_fetch_add(&m->nlate, 1, __ATOMIC_RELAXED);
	nvefs_log(NVEFS_LOG_WARN,
		  "multiple mount protection: the heartbeat was %llu ms late (was the host suspended, or the device "
		  "slow?); writes waited; nobody has taken the file system meanwhile: going on",
		  (unsigned long long)((now_ns - old_ns) / 1000000u));
}

int nvefs_mmp_beat(struct nvefs_mmp *m, struct nvefs_queue *q)
{
	uint64_t start_ns = nvefs_boot_ns();
	int err = check_claim(m, q);

	if (err)
		return err;
	m->rec.seq++;
	m->rec.time_s = (uint64_t)time(NULL);
	err = nvefs_mmp_write(q, &m->sb, &m->rec, NVEFS_BT_BEAT, m->buf);
	if (err)
		snprintf(m->why, sizeof(m->why), "multiple mount protection: the heartbeat cannot be written");
	else
		err = check_claim(m, q);
	if (!err)
		extend(m, start_ns + nvefs_mmp_ns(&m->sb, NVEFS_MMP_LEASE));
	return err;
}

static void lose(struct nvefs_mmp *m, int err)
{
	nvefs_mutex_lock(&m->lock);
	nvefs_dev_allow_writes(m->dev, NVEFS_WRITES_NEVER);
	m->lost_err = err;
	if (m->lost)
		m->lost(m->lost_arg, err, m->why);
	nvefs_cond_broadcast(&m->change);
	nvefs_mutex_unlock(&m->lock);
}

/* Until the next beat is due. False: stop. */
static bool pause_until(struct nvefs_mmp *m, uint64_t due_ns)
{
	bool go_on;

	nvefs_mutex_lock(&m->lock);
	while (!m->stop && !m->kick && nvefs_cond_wait_until(&m->wake, &m->lock, due_ns))
		continue;
	m->kick = false;
	go_on = !m->stop;
	nvefs_mutex_unlock(&m->lock);
	return go_on;
}

/* True: go on. */
static bool beat_or_lose(struct nvefs_mmp *m, struct nvefs_queue *q)
{
	int err = nvefs_mmp_beat(m, q);

	if (!err)
		return true;
	/* One error is none for as long as a lease, even if the host stood still over it: a second attempt tells. */
	if (err == -EBUSY || (m->failing && nvefs_boot_ns() >= m->lease_ns)) {
		lose(m, err);
		return false;
	}
	if (!m->failing)
		nvefs_log(NVEFS_LOG_WARN, "%s: %s; trying again", m->why, strerror(-err));
	m->failing = true;
	return true;
}

static void *beat_main(void *arg)
{
	struct nvefs_mmp *m = arg;
	uint64_t start_ns = nvefs_now_ns();
	struct nvefs_queue *q = NULL;
	int err = nvefs_queue_init(m->dev, 0, &q);

	if (!err)
		nvefs_queue_set_unlimited(q);
	nvefs_mutex_lock(&m->lock);
	m->start_err = err;
	m->up = true;
	nvefs_cond_broadcast(&m->change);
	nvefs_mutex_unlock(&m->lock);
	while (!err && pause_until(m, start_ns + nvefs_mmp_ns(&m->sb, 1) / (m->failing ? 4 : 1))) {
		start_ns = nvefs_now_ns();
		if (!beat_or_lose(m, q))
			break;
	}
	nvefs_queue_done(q);
	return NULL;
}

int nvefs_mmp_start(struct nvefs_mmp *m)
{
	int err = nvefs_thread_start(&m->thread, "nvefs-beat", beat_main, m);

	if (err)
		return err;
	nvefs_mutex_lock(&m->lock);
	while (!m->up)
		nvefs_cond_wait(&m->change, &m->lock);
	err = m->start_err;
	nvefs_mutex_unlock(&m->lock);
	if (err)
		nvefs_thread_join(m->thread);
	return err;
}

void nvefs_mmp_set_lost(struct nvefs_mmp *m, nvefs_mmp_lost_fn *lost, void *arg)
{
	if (!m)
		return;
	nvefs_mutex_lock(&m->lock);
	m->lost = lost;
	m->lost_arg = arg;
	if (lost && m->lost_err)
		lost(arg, m->lost_err, m->why);
	nvefs_mutex_unlock(&m->lock);
}

int nvefs_mmp_confirm(struct nvefs_mmp *m)
{
	int err;

	if (!m || nvefs_boot_ns() < __atomic_load_n(&m->lease_ns, __ATOMIC_ACQUIRE))
		return 0;
	nvefs_mutex_lock(&m->lock);
	while (!m->lost_err && nvefs_boot_ns() >= m->lease_ns) {
		m->kick = true;
		nvefs_cond_signal(&m->wake);
		nvefs_cond_wait(&m->change, &m->lock);
	}
	err = m->lost_err ? -EROFS : 0;
	nvefs_mutex_unlock(&m->lock);
	return err;
}

int nvefs_mmp_check(struct nvefs_mmp *m, struct nvefs_error *err)
{
	int code = 0;

	if (!m)
		return 0;
	nvefs_mutex_lock(&m->lock);
	if (m->lost_err)
		code = nvefs_error_set(err, -EBUSY, "%s: %s: %s", nvefs_dev_identity(m->dev)->target, m->why,
				       strerror(-m->lost_err));
	nvefs_mutex_unlock(&m->lock);
	return code;
}

/* With a lease from just now, so that nobody can have taken it; and with a nonce, so that it shows if somebody has. */
static void let_go(struct nvefs_mmp *m)
{
	struct nvefs_queue *q;
	int err = nvefs_queue_init(m->dev, 0, &q);

	if (!err) {
		nvefs_queue_set_unlimited(q);
		err = nvefs_mmp_beat(m, q);
		m->rec.state = NVEFS_MMP_FREE;
		m->rec.seq++;
		if (!err && nvefs_boot_ns() < m->lease_ns)
			err = nvefs_mmp_write(q, &m->sb, &m->rec, NVEFS_BT_CLAIM, m->buf);
		if (!err)
			err = nvefs_queue_flush(q);
		nvefs_queue_done(q);
	}
	if (err)
		nvefs_log(NVEFS_LOG_WARN, "%s: %s; whoever mounts next will wait to see that this host is gone",
			  m->why[0] ? m->why : "multiple mount protection: the claim stays", strerror(-err));
}

void nvefs_mmp_release(struct nvefs_mmp *m, bool clean)
{
	if (!m)
		return;
	nvefs_mutex_lock(&m->lock);
	m->stop = true;
	nvefs_cond_signal(&m->wake);
	nvefs_mutex_unlock(&m->lock);
	nvefs_thread_join(m->thread);
	if (clean && !m->lost_err)
		let_go(m);
	nvefs_dev_allow_writes(m->dev, NVEFS_WRITES_ALWAYS);
	nvefs_mmp_free(m);
}

int nvefs_mmp_make(struct nvefs_dev *dev, struct nvefs_queue *q, const struct nvefs_super *sb)
{
	const struct nvefs_mmp_rec rec = nvefs_mmp_unused(sb, (uint64_t)time(NULL));
	uint8_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	int err = buf ? 0 : -ENOMEM;

	for (uint16_t type = NVEFS_BT_CLAIM; type <= NVEFS_BT_BEAT && !err; type++)
		err = nvefs_mmp_write(q, sb, &rec, type, buf);
	nvefs_buf_free(buf);
	if (!err && nvefs_dev_limits(dev)->volatile_cache)
		err = nvefs_queue_flush(q);
	return err;
}

uint64_t nvefs_mmp_late(struct nvefs_mmp *m)
{
	return m ? __atomic_load_n(&m->nlate, __ATOMIC_RELAXED) : 0;
}
