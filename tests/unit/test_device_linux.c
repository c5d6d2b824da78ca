/* SPDX-License-Identifier: MIT */
/* What the back ends on the kernel's drivers rest on, without a driver: nodes, callers, retries. */
#include "test_device.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "device/callers.h"
#include "device/io_command.h"
#include "device/node.h"
#include "device/retry.h"
#include "nvme/status.h"

/* ---- Nodes, in a sysfs of the test's own ---- */

static char sysfs[64];

static void make(const char *fmt, const char *name, const char *content)
{
	char command[1024], path[256];

	snprintf(path, sizeof(path), fmt, name);
	snprintf(command, sizeof(command), "mkdir -p \"$(dirname %s/%s)\" && printf '%%b' '%s' >%s/%s", sysfs, path,
		 content, sysfs, path);
	ck_assert_int_eq(system(command), 0);
}

static void tie(const char *link, const char *to)
{
	char command[512];

	snprintf(command, sizeof(command), "mkdir -p \"$(dirname %s/%s)\" && ln -s %s/%s %s/%s", sysfs, link, sysfs, to,
		 sysfs, link);
	ck_assert_int_eq(system(command), 0);
}

static void sysfs_make(void)
{
	strcpy(sysfs, "/tmp/nvefs-sysfs-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(sysfs));
	make("devices/nvme0/%s/dev", "nvme0n1", "259:0");
	make("devices/nvme0/nvme0n1/%s", "queue/max_hw_sectors_kb", "512");
	make("devices/nvme0/nvme0n1/%s", "queue/max_segments", "127");
	make("devices/nvme0/nvme0n1/%s", "mq/0/cpu_list", "0");
	make("devices/nvme0/nvme0n1/%s", "mq/1/cpu_list", "1");
	make("devices/nvme0/nvme0n1/nvme0n1p1/%s", "partition", "1");
	make("devices/virtual/nvme-subsystem/nvme-subsys1/%s", "nvme1n1/queue/max_hw_sectors_kb", "128");
	make("class/nvme-subsystem/%s", ".keep", "");
	tie("devices/virtual/nvme-subsystem/nvme-subsys1/subsystem", "class/nvme-subsystem");
	tie("devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1/device", "devices/virtual/nvme-subsystem/nvme-subsys1");
	tie("class/block/nvme1n1", "devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1");
	tie("devices/nvme0/nvme0n1/device", "devices/nvme0");
	make("class/block/nvme1c1n1/mq/%s", "0/cpu_list", "0");
	make("class/block/nvme1c2n1/mq/%s", "0/cpu_list", "0");
	make("class/block/nvme1c2n1/mq/%s", "1/cpu_list", "1");
	make("devices/nvme0/%s/dev", "ng0n1", "240:0");
	make("devices/nvme0/%s", "dev", "241:0");
	make("devices/scsi/1:0:0:0/block/%s/dev", "sdb", "8:16");
	make("devices/scsi/1:0:0:0/scsi_generic/%s/dev", "sg1", "21:1");
	make("devices/scsi/2:0:0:0/scsi_generic/%s/dev", "sg2", "21:2");
	tie("devices/scsi/1:0:0:0/block/sdb/device", "devices/scsi/1:0:0:0");
	tie("devices/scsi/1:0:0:0/scsi_generic/sg1/device", "devices/scsi/1:0:0:0");
	tie("devices/scsi/2:0:0:0/scsi_generic/sg2/device", "devices/scsi/2:0:0:0");
	make("class/nvme-generic/%s", ".keep", "");
	make("class/scsi_generic/%s", ".keep", "");
	make("class/nvme/%s", ".keep", "");
	tie("class/block/nvme0n1", "devices/nvme0/nvme0n1");
	tie("class/nvme-generic/ng0n1", "devices/nvme0/ng0n1");
	tie("devices/nvme0/ng0n1/subsystem", "class/nvme-generic");
	tie("devices/nvme0/subsystem", "class/nvme");
	tie("devices/scsi/1:0:0:0/scsi_generic/sg1/subsystem", "class/scsi_generic");
	tie("devices/scsi/2:0:0:0/scsi_generic/sg2/subsystem", "class/scsi_generic");
	tie("dev/block/259:0", "devices/nvme0/nvme0n1");
	tie("dev/block/259:1", "devices/nvme0/nvme0n1/nvme0n1p1");
	tie("dev/char/240:0", "devices/nvme0/ng0n1");
	tie("dev/char/241:0", "devices/nvme0");
	tie("dev/block/8:16", "devices/scsi/1:0:0:0/block/sdb");
	tie("dev/char/21:1", "devices/scsi/1:0:0:0/scsi_generic/sg1");
	tie("dev/char/21:2", "devices/scsi/2:0:0:0/scsi_generic/sg2");
}

static void sysfs_remove(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", sysfs);
	ck_assert_int_eq(system(command), 0);
}

static const struct {
	bool block;
	unsigned int major, minor;
	enum nvefs_node_kind kind;
	const char *block_name, *character;
} nodes[] = {
	{true, 259, 0, NVEFS_NODE_NVME, "nvme0n1", "ng0n1"},
	{false, 240, 0, NVEFS_NODE_NVME, "nvme0n1", "ng0n1"},
	{true, 259, 1, NVEFS_NODE_PARTITION, "nvme0n1", ""},
	{false, 241, 0, NVEFS_NODE_CONTROLLER, "", "nvme0"},
	{true, 8, 16, NVEFS_NODE_SCSI, "sdb", "sg1"},
	{false, 21, 1, NVEFS_NODE_SCSI, "sdb", "sg1"},
	{false, 21, 2, NVEFS_NODE_SCSI, "", "sg2"},
};

/* Of one of the two paths; the other one never says anything. As the kernel writes them. */
static const struct {
	const char *controller, *access; /* NULL: as before, at first none */
	enum nvefs_node_paths paths;
} states[] = {
	{"live\\n", NULL, NVEFS_PATHS_LIVE},
	{"connecting\\n", NULL, NVEFS_PATHS_AWAY},
	{"live\\n", "optimized\\n", NVEFS_PATHS_LIVE},
	{"live\\n", "inaccessible\\n", NVEFS_PATHS_AWAY},
	{"live\\n", "non-optimized\\n", NVEFS_PATHS_LIVE},
	{"resetting\\n", "optimized\\n", NVEFS_PATHS_AWAY},
	{"", NULL, NVEFS_PATHS_AWAY},
};

START_TEST(nodes_and_their_other_names)
{
	struct nvefs_node_limits limits;
	struct nvefs_node node;
	struct stat st = {0};

	sysfs_make();
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		st.st_mode = nodes[i].block ? S_IFBLK : S_IFCHR;
		st.st_rdev = makedev(nodes[i].major, nodes[i].minor);
		ck_assert_int_eq(nvefs_node_look(sysfs, &st, &node), 0);
		ck_assert_msg(node.kind == nodes[i].kind, "node %zu: kind %d", i, (int)node.kind);
		ck_assert_str_eq(node.block, nodes[i].block_name);
		ck_assert_str_eq(node.character, nodes[i].character);
		ck_assert_int_eq(node.by_block, nodes[i].block);
	}
	st.st_rdev = makedev(1, 3);
	ck_assert_int_eq(nvefs_node_look(sysfs, &st, &node), -ENOENT);

	/* 127 pages are less than 512 KiB. */
	strcpy(node.block, "nvme0n1");
	nvefs_node_limits(sysfs, &node, &limits);
	ck_assert_uint_eq(limits.max_bytes, 127 * 4096);
	ck_assert_uint_eq(limits.transfer_bytes, 512 << 10);
	ck_assert_uint_eq(limits.segments_bytes, 127 * 4096);
	ck_assert_uint_eq(limits.hw_queues, 2);
	ck_assert(!limits.multipath);
	/* The head of several paths belongs to the subsystem. */
	strcpy(node.block, "nvme1n1");
	nvefs_node_limits(sysfs, &node, &limits);
	ck_assert_uint_eq(limits.max_bytes, 128 << 10);
	ck_assert_uint_eq(limits.segments_bytes, 0);
	ck_assert(limits.multipath);
	ck_assert_uint_eq(limits.hw_queues, 2);
	ck_assert_int_eq(nvefs_node_paths(sysfs, &node), NVEFS_PATHS_AWAY);
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		make("class/block/nvme1c2n1/%s", "device/state", states[i].controller);
		if (states[i].access)
			make("class/block/nvme1c2n1/%s", "ana_state", states[i].access);
		ck_assert_msg(nvefs_node_paths(sysfs, &node) == states[i].paths, "state %zu", i);
	}
	strcpy(node.block, "nvme1n2");
	ck_assert_int_eq(nvefs_node_paths(sysfs, &node), NVEFS_PATHS_GONE);
	strcpy(node.block, "");
	nvefs_node_limits(sysfs, &node, &limits);
	ck_assert_uint_eq(limits.max_bytes, 0);
	sysfs_remove();
}
END_TEST

/* ---- Callers ---- */

struct job {
	struct nvefs_job job;
	int runs;
};

static void run_job(struct nvefs_job *job)
{
	nvefs_container_of(job, struct job, job)->runs++;
	usleep(100);
}

START_TEST(callers_run_each_job_once)
{
	struct nvefs_callers *c;
	static struct job jobs[200];
	uint32_t reaped = 0;

	memset(jobs, 0, sizeof(jobs));
	ck_assert_int_eq(nvefs_callers_new(3, run_job, &c), 0);
	ck_assert(nvefs_callers_prepare_wait(c));
	for (size_t i = 0; i < 200; i++) {
		nvefs_list_init(&jobs[i].job.link);
		nvefs_callers_start(c, &jobs[i].job);
	}
	while (reaped < 200) {
		struct pollfd pfd = {.fd = nvefs_callers_fd(c), .events = POLLIN};

		if (nvefs_callers_prepare_wait(c))
			ck_assert_int_eq(poll(&pfd, 1, 10000), 1); /* a completion slept through */
		while (nvefs_callers_reap(c))
			reaped++;
	}
	for (size_t i = 0; i < 200; i++)
		ck_assert_int_eq(jobs[i].runs, 1);
	nvefs_callers_free(c);
}
END_TEST

/* ---- Retries ---- */

START_TEST(retries_are_bounded_and_in_order)
{
	struct nvefs_dev *dev = device_open("ram:64M");
	struct nvefs_queue *q = device_queue(dev);
	struct nvefs_retry once = {.tries = 0}, pause = {.tries = 0}, e = {.tries = 0};
	const struct nvefs_retry_want never = {NVEFS_RETRY_NEVER, 0}, at_once = {NVEFS_RETRY_ONCE, 0},
				      paused = {NVEFS_RETRY_PAUSE, 0};
	struct nvefs_retries r;
	int n = 0;

	ck_assert_int_eq(nvefs_retries_init(&r, q), 0);
	ck_assert(!nvefs_retries_add(&r, &e, never));
	ck_assert(nvefs_retries_add(&r, &pause, paused));
	ck_assert(nvefs_retries_add(&r, &once, at_once));
	ck_assert(!nvefs_retries_prepare_wait(&r));
	ck_assert_ptr_eq(nvefs_retries_due(&r), &once);
	ck_assert(!nvefs_retries_add(&r, &once, at_once));
	/* The queue's descriptor tells when the other is due. */
	while (nvefs_retries_prepare_wait(&r)) {
		struct pollfd pfd = {.fd = nvefs_queue_fd(q), .events = POLLIN};

		ck_assert_int_eq(poll(&pfd, 1, 5000), 1);
	}
	ck_assert_ptr_eq(nvefs_retries_due(&r), &pause);
	ck_assert_ptr_null(nvefs_retries_due(&r));
	for (pause.tries = 0; n < 100 && nvefs_retries_add(&r, &pause, paused); n++)
		nvefs_list_del(&pause.link);
	ck_assert_int_ge(n, 3);
	ck_assert_int_le(n, 10);
	nvefs_retries_done(&r);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
}
END_TEST

START_TEST(what_is_tried_again)
{
	const uint16_t dnr = NVEFS_NVME_DNR;

	ck_assert_int_eq(nvefs_retry_for_nvme(0), NVEFS_RETRY_NEVER);
	ck_assert_int_eq(nvefs_retry_for_nvme(NVEFS_NVME_SC_READ_ERROR), NVEFS_RETRY_ONCE);
	ck_assert_int_eq(nvefs_retry_for_nvme(NVEFS_NVME_SC_READ_ERROR | dnr), NVEFS_RETRY_NEVER);
	ck_assert_int_eq(nvefs_retry_for_nvme(NVEFS_NVME_SC_NS_NOT_READY), NVEFS_RETRY_PAUSE);
	ck_assert_int_eq(nvefs_retry_for_nvme(NVEFS_NVME_SC_ANA_TRANSITION), NVEFS_RETRY_PAUSE);
	ck_assert_int_eq(nvefs_retry_for_nvme(NVEFS_NVME_SC_ANA_TRANSITION | dnr), NVEFS_RETRY_NEVER);
	ck_assert_int_eq(nvefs_retry_for_nvme(NVEFS_NVME_SC_COMPARE_FAILED), NVEFS_RETRY_NEVER);
	ck_assert_int_eq(nvefs_retry_for_errno(-EINTR), NVEFS_RETRY_ONCE);
	ck_assert_int_eq(nvefs_retry_for_errno(-EAGAIN), NVEFS_RETRY_PAUSE);
	ck_assert_int_eq(nvefs_retry_for_errno(-ENODEV), NVEFS_RETRY_NEVER);
}
END_TEST

/* ---- Commands ---- */

START_TEST(ios_as_commands)
{
	struct iovec iov = {NULL, 8192};
	struct nvefs_io io = {.op = NVEFS_IO_WRITE, .flags = NVEFS_IO_FUA, .pblk = 5, .nblks = 2, .iov = &iov, .niov = 1};
	struct nvefs_io_command c;

	nvefs_io_command_build(&c, &io, 7, 3);
	ck_assert_uint_eq(c.sqe.opcode, NVEFS_NVME_WRITE);
	ck_assert_uint_eq(le32_get(c.sqe.nsid), 7);
	ck_assert_uint_eq(nvefs_nvme_sqe_slba(&c.sqe), 40);
	ck_assert_uint_eq(nvefs_nvme_sqe_nlbs(&c.sqe), 16);
	ck_assert(le32_get(c.sqe.cdw12) & NVEFS_NVME_CDW12_FUA);
	ck_assert_uint_eq(c.niov, 1);

	io = (struct nvefs_io){.op = NVEFS_IO_DISCARD, .pblk = 1ull << 40, .nblks = 3};
	nvefs_io_command_build(&c, &io, 1, 3);
	ck_assert_uint_eq(c.sqe.opcode, NVEFS_NVME_DSM);
	ck_assert_uint_eq(c.niov, 1);
	ck_assert_uint_eq(c.iov->iov_len, 16);
	ck_assert_uint_eq(le64_get(c.range.slba), 1ull << 43);
	ck_assert_uint_eq(le32_get(c.range.nlbs), 24);

	io = (struct nvefs_io){.op = NVEFS_IO_FLUSH};
	nvefs_io_command_build(&c, &io, 1, 0);
	ck_assert_uint_eq(c.sqe.opcode, NVEFS_NVME_FLUSH);
	ck_assert_uint_eq(c.niov, 0);
}
END_TEST

Suite *device_linux_suite(void)
{
	Suite *s = suite_create("device linux");
	TCase *t = tcase_create("linux");

	tcase_add_test(t, nodes_and_their_other_names);
	tcase_add_test(t, callers_run_each_job_once);
	tcase_add_test(t, retries_are_bounded_and_in_order);
	tcase_add_test(t, what_is_tried_again);
	tcase_add_test(t, ios_as_commands);
	suite_add_tcase(s, t);
	return s;
}
