/* SPDX-License-Identifier: MIT */
/* A cache that is switched behind a store that is open: what was committed is there after any power cut. */
#include "test_store.h"

#include <string.h>

#include "device/backend.h"
#include "device/embedded.h"
#include "device/identify.h"
#include "device/scsi_route.h"
#include "nvme/admin.h"
#include "nvme/features.h"

#define SEEDS 6u

static uint8_t some_block[NVEFS_BLOCK_SIZE] __attribute__((aligned(4096))) = {1};

static void set_feature(struct nvefs_dev *dev, bool on)
{
	struct nvefs_nvme_sqe sqe;
	uint16_t status = 1;
	uint32_t result;

	nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE, false, on);
	ck_assert_int_eq(nvefs_dev_admin(dev, &sqe, NULL, 0, &result, &status), 0);
	ck_assert_uint_eq(status, 0);
}

/* MODE SELECT(6) of WCE by the store's own route. */
static void mode_select(struct nvefs_queue *q, bool on)
{
	uint8_t list[24] = {[4] = 0x08, [5] = 0x12, [6] = on ? 0x04 : 0}, cdb[6] = {0x15, 0x10, 0, 0, sizeof(list)};
	sg_io_hdr_t hdr = {.interface_id = 'S', .dxfer_direction = SG_DXFER_TO_DEV, .cmd_len = 6, .cmdp = cdb,
			   .dxfer_len = sizeof(list), .dxferp = list};

	ck_assert_int_eq(nvefs_scsi_route_sg_io(q, &hdr), 0);
	ck_assert_uint_eq(hdr.status, 0);
}

static void open_with_cache(struct fixture *f, bool scsi, bool on)
{
	const struct nvefs_mkfs_params params = {.label = "test", .creator = "test_store"};
	struct nvefs_error err = {""};
	struct nvefs_dev *ram;

	memset(f, 0, sizeof(*f));
	ck_assert_msg(!nvefs_dev_open("ram:256M,vwc=on", NULL, &ram, &err), "%s", err.text);
	set_feature(ram, on);
	f->dev = ram;
	if (scsi)
		ck_assert_msg(!nvefs_scsi_route_open(ram, NULL, &f->dev, &err), "%s", err.text);
	else /* the limits are those of now */
		ck_assert_msg(!nvefs_dev_identify(ram, "ram", 1, UINT32_MAX, &err), "%s", err.text);
	ck_assert_uint_eq(scsi ? nvefs_dev_drive(f->dev)->scsi.cache : nvefs_dev_drive(f->dev)->nvme.cache,
			  on ? NVEFS_CACHE_ON : NVEFS_CACHE_OFF);
	ck_assert_msg(!nvefs_store_mkfs(f->dev, &params, &f->sb, &err), "%s", err.text);
	f->q = test_queue(f->dev);
}

static void commit(struct fixture *f, uint64_t value)
{
	ck_assert_int_eq(cells_put(f, f->q, 0, 300, value), 0);
	ck_assert_int_eq(nvefs_commit_run(f->st, false), 0);
}

/* _i: natively or by the scsi route; opened with the cache off or on. */
START_TEST(a_switched_cache_loses_nothing)
{
	struct nvefs_store_opts opts = {.commit_interval_ns = 1000000000000};
	bool scsi = _i & 1, on = _i & 2;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct fixture f;
		uint64_t lost;

		open_with_cache(&f, scsi, on);
		ck_assert(nvefs_dev_limits(f.dev)->volatile_cache);
		fixture_open(&f, &opts);
		for (int i = 0; i < (on ? 2 : 1); i++) {
			bool to = on ? i : true;

			commit(&f, 7 + (uint64_t)i);
			ck_assert_int_eq(nvefs_queue_write(f.q, cell_pblk(&f, CELLS - 1), 1, some_block, 0), 0);
			if (scsi)
				mode_select(f.q, to);
			else
				set_feature(f.dev, to);
			if (!to && scsi) { /* what was written with the cache on has been flushed with it */
				ck_assert_int_eq(nvefs_embedded_power_cut(f.dev, seed, &lost), 0);
				ck_assert_uint_eq(lost, 0);
			}
		}
		commit(&f, 9);
		ck_assert_int_eq(nvefs_embedded_power_cut(f.dev, seed, &lost), 0);
		fixture_crash(&f);
		fixture_open(&f, NULL);
		for (uint32_t i = 0; i < 300; i++)
			ck_assert_msg(cell_get(&f, f.q, i) == 9, "seed %llu: cell %u is lost", (unsigned long long)seed, i);
		fixture_done(&f);
	}
}
END_TEST

Suite *store_cache_suite(void)
{
	Suite *s = suite_create("store cache");
	TCase *tc = tcase_create("cache");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_switched_cache_loses_nothing, 0, 4);
	suite_add_tcase(s, tc);
	return s;
}
