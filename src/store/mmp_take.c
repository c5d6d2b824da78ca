/* SPDX-License-Identifier: MIT */
/* The taker: steps 6 to 9 of mmp.h. */
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "store/mmp_parts.h"
#include "store/super.h"

#define MAX_POLL_NS 200000000ull /* a watch looks, and can be given up, this often at least */
#define MAX_RESTARTS 4u

/* One of the two blocks as last seen. */
struct seen {
	uint8_t *bytes;
	int err; /* of reading; then all bytes are zeros */
	bool sound;
	struct nvefs_mmp_rec rec;
};

struct take {
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	const struct nvefs_mmp_opts *opts;
	struct nvefs_error *err;
	const char *target;
	struct nvefs_super sb;
	uint8_t *buf;
	struct seen claim, beat;
};

/* ---- Looking ---- */

static bool read_one(struct take *t, uint16_t type, struct seen *s)
{
	bool changed;

	s->err = nvefs_queue_read(t->q, nvefs_mmp_pblk(type), 1, t->buf);
	if (s->err)
		memset(t->buf, 0, NVEFS_BLOCK_SIZE);
	changed = memcmp(s->bytes, t->buf, NVEFS_BLOCK_SIZE) != 0;
	memcpy(s->bytes, t->buf, NVEFS_BLOCK_SIZE);
	s->sound = nvefs_mmp_decode(s->bytes, &t->sb, type, &s->rec) == NVEFS_BLOCK_OK;
	return changed;
}

/* Whether one of them is not what it was. The claim first: a claim seen here is older than the beat seen with it. */
static bool read_both(struct take *t)
{
	bool claim = read_one(t, NVEFS_BT_CLAIM, &t->claim);

	return read_one(t, NVEFS_BT_BEAT, &t->beat) || claim;
}

static bool is_free(const struct take *t)
{
	return t->claim.sound && t->claim.rec.state == NVEFS_MMP_FREE && t->beat.sound &&
	       t->beat.rec.nonce == t->claim.rec.nonce;
}

/* Of whoever seems to have it; NULL: nothing says. */
static const struct nvefs_mmp_rec *who(const struct take *t)
{
	if (t->claim.sound && t->claim.rec.state != NVEFS_MMP_FREE)
		return &t->claim.rec;
	return t->beat.sound ? &t->beat.rec : NULL;
}

static uint64_t watch_ns(const struct take *t)
{
	uint64_t ms = t->sb.mmp_interval_ms;

	if (t->claim.sound && t->claim.rec.interval_ms > ms)
		ms = t->claim.rec.interval_ms;
	if (t->beat.sound && t->beat.rec.interval_ms > ms)
		ms = t->beat.rec.interval_ms;
	return ms * NVEFS_MMP_WATCH * 1000000u;
}

static int busy(struct take *t)
{
	const struct nvefs_mmp_rec *rec = who(t);
	char host[sizeof(rec->host)] = "unknown", other[sizeof(rec->target)] = "unknown";
	const char *how = t->opts->force_how;

	if (rec) {
		nvefs_mmp_host_text(rec->host, host, sizeof(host));
		nvefs_mmp_host_text(rec->target, other, sizeof(other));
	}
	return nvefs_error_set(t->err, -EBUSY,
			       "%s: in use by host '%s', which %s it as %.100s and is alive: its heartbeat moves: %s "
			       "there%s%s",
			       t->target, host, rec && rec->state == NVEFS_MMP_FSCK ? "checks" : "has mounted", other,
			       rec && rec->state == NVEFS_MMP_FSCK ? "let that end" : "unmount it",
			       how ? ", or take it away from that host with " : "", how ? how : "");
}

/* ---- Waiting ---- */

static int tell(struct take *t, uint64_t waited_ns, uint64_t total_ns, bool taken)
{
	/* The claim is ours by then. */
	const struct nvefs_mmp_rec *rec = taken && t->beat.sound ? &t->beat.rec : who(t);
	struct nvefs_host_wait w = {
		.taken = taken, .waited_ms = waited_ns / 1000000u, .total_ms = total_ns / 1000000u};

	if (!t->opts->wait)
		return 0;
	if (rec) {
		nvefs_mmp_host_text(rec->host, w.host, sizeof(w.host));
		nvefs_mmp_host_text(rec->target, w.target, sizeof(w.target));
		w.seen_s = rec->time_s;
		w.fsck = rec->state == NVEFS_MMP_FSCK;
	}
	if (t->opts->wait(t->opts->wait_arg, &w))
		return nvefs_error_set(t->err, -ECANCELED, "%s: given up while waiting for another host", t->target);
	return 0;
}

static void sleep_ns(uint64_t ns)
{
	const struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	nanosleep(&ts, NULL);
}

/* For total_ns. With `looking` until something changes: *ret_changed. */
static int wait_for(struct take *t, uint64_t total_ns, bool looking, bool *ret_changed)
{
	uint64_t start_ns = nvefs_boot_ns(), step_ns = nvefs_mmp_ns(&t->sb, 1) / 2, waited_ns = 0;
	int err = 0;

	if (step_ns > MAX_POLL_NS)
		step_ns = MAX_POLL_NS;
	*ret_changed = false;
	if (t->opts->alone)
		return 0;
	while (!err && waited_ns < total_ns && !*ret_changed) {
		err = tell(t, waited_ns, total_ns, !looking);
		if (err)
			break;
		sleep_ns(step_ns < total_ns - waited_ns ? step_ns : total_ns - waited_ns);
		/* The last look is after the whole time. */
		waited_ns = nvefs_boot_ns() - start_ns;
		*ret_changed = looking && read_both(t);
	}
	return err;
}

/* Step 6. 0: nobody is alive, as far as can be seen. */
static int watch(struct take *t)
{
	bool changed;
	int err;

	for (uint32_t i = 0; i < MAX_RESTARTS; i++) {
		read_both(t);
		if (is_free(t))
			return 0;
		/* The claim can be judged by what it becomes; but who cannot see a beat cannot tell that there is none. */
		if (t->beat.err)
			return nvefs_error_set(t->err, -EIO,
					       "%s: the heartbeat block %u cannot be read, so that nobody can tell "
					       "whether another host has it%s%s",
					       t->target, NVEFS_BEAT_PBLK,
					       t->opts->force_how ? ": see to that, or take it with " : "",
					       t->opts->force_how ? t->opts->force_how : "");
		err = wait_for(t, watch_ns(t), true, &changed);
		if (err || !changed)
			return err;
		if (!is_free(t))
			return busy(t);
		/* It was let go while we looked. */
	}
	return busy(t);
}

/* ---- Taking ---- */

/* Ours, as it is now. What it says otherwise is in t->claim. */
static bool claim_is(struct take *t, const struct nvefs_mmp *m)
{
	read_one(t, NVEFS_BT_CLAIM, &t->claim);
	return t->claim.sound && t->claim.rec.nonce == m->rec.nonce;
}

static int not_kept(struct take *t)
{
	char host[sizeof(t->claim.rec.host)];

	if (t->claim.sound) {
		nvefs_mmp_host_text(t->claim.rec.host, host, sizeof(host));
		return nvefs_error_set(t->err, -EBUSY, "%s: host '%s' takes it at the same time: leave it to that one",
				       t->target, host);
	}
	return nvefs_error_set(t->err, t->claim.err ? t->claim.err : -EIO,
			       "%s: the claim in block %u is not what was written: another host takes it at the same "
			       "time, or the device lost it",
			       t->target, NVEFS_CLAIM_PBLK);
}

/* Steps 7 and 8. `watched`: step 6 has been made, and t->beat is what it saw. -EAGAIN: something has changed since. */
static int claim(struct take *t, struct nvefs_mmp *m, bool watched)
{
	uint64_t start_ns = nvefs_boot_ns(), interval_ns = nvefs_mmp_ns(&t->sb, 1);
	bool changed, slow;
	int err;

	if (read_both(t) && watched)
		return -EAGAIN;
	m->rec.seq = (t->beat.sound ? t->beat.rec.seq : 0) + 1;
	m->rec.time_s = (uint64_t)time(NULL);
	err = nvefs_mmp_write(t->q, &t->sb, &m->rec, NVEFS_BT_CLAIM, t->buf);
	slow = nvefs_boot_ns() - start_ns > interval_ns / 4;
	if (!err)
		err = nvefs_queue_flush(t->q);
	if (err)
		return nvefs_error_set(t->err, err, "%s: the claim cannot be written to block %u: %s", t->target,
				       NVEFS_CLAIM_PBLK, strerror(-err));
	if (watched && !slow) {
		if (!t->opts->alone)
			sleep_ns(interval_ns / 2);
		if (!claim_is(t, m))
			return not_kept(t);
		changed = read_one(t, NVEFS_BT_BEAT, &t->beat);
		if (!changed && !t->beat.err)
			return 0;
	}
	err = wait_for(t, watch_ns(t), false, &changed);
	if (err)
		return err;
	return claim_is(t, m) ? 0 : not_kept(t);
}

/* Step 9. What was waited for may have become another file system meanwhile. */
static int first_beat(struct take *t, struct nvefs_mmp *m)
{
	struct nvefs_super now;
	int err = nvefs_super_read(t->dev, t->q, &now, t->err);

	if (err)
		return err;
	if (memcmp(now.uuid, t->sb.uuid, sizeof(now.uuid)) != 0 || !nvefs_super_mmp(&now))
		return nvefs_error_set(t->err, -EBUSY, "%s: has become another file system while we waited: try again",
				       t->target);
	err = nvefs_mmp_beat(m, t->q);
	if (err)
		return nvefs_error_set(t->err, err, "%s: %s: %s", t->target, m->why, strerror(-err));
	return 0;
}

static int take(struct take *t, struct nvefs_mmp *m)
{
	int err = -EAGAIN;

	for (uint32_t i = 0; i < MAX_RESTARTS && err == -EAGAIN; i++) {
		err = t->opts->force ? 0 : watch(t);
		if (!err)
			err = claim(t, m, !t->opts->force);
	}
	if (err == -EAGAIN)
		err = busy(t);
	if (!err)
		err = first_beat(t, m);
	if (err)
		return err;
	err = nvefs_mmp_start(m);
	if (err)
		return nvefs_error_set(t->err, err, "%s: cannot start the heartbeat's thread: %s", t->target,
				       strerror(-err));
	return 0;
}

/* 0 and t->q NULL: there is nothing to protect. */
static int begin(struct take *t, struct nvefs_dev *dev, const struct nvefs_mmp_opts *opts, struct nvefs_error *err)
{
	int rc;

	*t = (struct take){.dev = dev, .opts = opts, .err = err, .target = nvefs_dev_identity(dev)->target};
	rc = nvefs_queue_init(dev, 0, &t->q);
	if (rc)
		return nvefs_error_set(err, rc, "%s: cannot get a queue: %s", t->target, strerror(-rc));
	/* What cannot be read is told by whoever opens it. */
	if (nvefs_super_read(dev, t->q, &t->sb, NULL) || !nvefs_super_mmp(&t->sb)) {
		nvefs_queue_done(t->q);
		t->q = NULL;
		return 0;
	}
	t->buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	t->claim.bytes = nvefs_buf_new_zeroed(NVEFS_BLOCK_SIZE);
	t->beat.bytes = nvefs_buf_new_zeroed(NVEFS_BLOCK_SIZE);
	if (!t->buf || !t->claim.bytes || !t->beat.bytes)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", t->target);
	return 0;
}

static void end(struct take *t)
{
	nvefs_buf_free(t->claim.bytes);
	nvefs_buf_free(t->beat.bytes);
	nvefs_buf_free(t->buf);
	nvefs_queue_done(t->q);
}

int nvefs_mmp_look(struct nvefs_dev *dev, const struct nvefs_mmp_opts *opts, struct nvefs_error *err)
{
	struct take t;
	int rc = begin(&t, dev, opts, err);

	if (!rc && t.q && !opts->force)
		rc = watch(&t);
	end(&t);
	return rc;
}

int nvefs_mmp_take(struct nvefs_dev *dev, const struct nvefs_mmp_opts *opts, struct nvefs_mmp **ret_m,
		   struct nvefs_error *err)
{
	struct nvefs_mmp *m = NULL;
	struct take t;
	int rc = begin(&t, dev, opts, err);

	if (!rc && t.q) {
		m = nvefs_mmp_new(dev, &t.sb, opts);
		rc = m ? take(&t, m) : nvefs_error_set(err, -ENOMEM, "%s: out of memory", t.target);
	}
	end(&t);
	if (!rc) {
		*ret_m = m;
		return 0;
	}
	if (m)
		nvefs_dev_allow_writes(dev, NVEFS_WRITES_ALWAYS);
	nvefs_mmp_free(m);
	return rc;
}
