/* SPDX-License-Identifier: MIT */
/*
 * The SCSI side: a command through the translation and its completion, and
 * the readers of what a SCSI device answers.
 *
 * Input: one byte says which. A command: logical unit (bits below), length of the
 * CDB, length of the data out and of the buffer in (two bytes each), NVMe status
 * of the parts (two bytes), the CDB, the data. A reader: the bytes.
 */
#include <string.h>

#include "nvme/admin.h"
#include "nvme/status.h"
#include "scsi/log.h"
#include "scsi/sntl.h"
#include "target.h"

const char fuzz_name[] = "scsi";

enum { COMMAND, SENSE, INQUIRY, SUPPORTED, SERIAL, IDENTIFICATION, LIMITS, PROVISIONING, CAPACITY, MODE, LOG_LIST, LOG_PAGE, KINDS };

#define LU_512 1u
#define LU_NO_CACHE 2u
#define LU_DESCRIPTOR 4u
#define LU_NO_VWC 8u
#define LU_SMALL 16u
#define LU_OUT_SCATTERED 32u
#define LU_IN_SCATTERED 64u
#define LU_ONE_RANGE 128u
#define HEAD 9u
#define DATA_MAX 8192u
#define NPSS 4u

/* What a route may do to a drive: nothing that destroys it. */
static bool opcode_harmless(uint8_t opcode)
{
	switch (opcode) {
	case NVEFS_NVME_FLUSH:
	case NVEFS_NVME_WRITE:
	case NVEFS_NVME_READ:
	case NVEFS_NVME_COMPARE:
	case NVEFS_NVME_WRITE_ZEROES:
	case NVEFS_NVME_DSM:
	case NVEFS_NVME_VERIFY:
		return true;
	}
	return false;
}

/* The two features that a route may set, which are never saved. */
static void promise_admin(const struct nvefs_nvme_sqe *sqe)
{
	uint32_t fid = le32_get(sqe->cdw10), value = le32_get(sqe->cdw11);

	PROMISE(sqe->opcode == NVEFS_NVME_ADMIN_SET_FEATURES);
	PROMISE((fid == NVEFS_NVME_FEATURE_WRITE_CACHE && value <= 1) ||
		(fid == NVEFS_NVME_FEATURE_POWER && value <= NPSS));
}

static void promise_part(const struct nvefs_sntl_part *p, const struct nvefs_sntl_request *req)
{
	PROMISE(opcode_harmless(p->sqe.opcode));
	PROMISE(le32_get(p->sqe.nsid) == 1 || p->sqe.opcode == NVEFS_NVME_FLUSH);
	switch (p->data) {
	case NVEFS_SNTL_NO_DATA:
		PROMISE(!p->bytes || p->sqe.opcode == NVEFS_NVME_WRITE_ZEROES || p->sqe.opcode == NVEFS_NVME_VERIFY);
		break;
	case NVEFS_SNTL_FROM_OUT:
		PROMISE((uint64_t)p->offset + p->bytes <= req->out_len && p->repeat >= 1);
		break;
	case NVEFS_SNTL_TO_IN:
		PROMISE(p->bytes <= req->in_len);
		break;
	case NVEFS_SNTL_RANGES:
		PROMISE(p->bytes && p->bytes <= req->max_ranges * sizeof(struct nvefs_nvme_dsm_range));
		break;
	}
}

static void promise_answer(const struct nvefs_sntl_cmd *cmd, const struct nvefs_sntl_request *req)
{
	struct nvefs_sense s;

	PROMISE(cmd->sense_len <= NVEFS_SENSE_MAX);
	PROMISE(cmd->in_bytes <= req->in_len && cmd->out_bytes <= req->out_len);
	if (cmd->status == NVEFS_SCSI_CHECK_CONDITION) {
		PROMISE(!nvefs_sense_parse(cmd->sense, cmd->sense_len, &s));
		PROMISE(s.key != NVEFS_SENSE_NO_SENSE && nvefs_sense_errno(cmd->status, &s) < 0);
	} else {
		PROMISE(cmd->status != NVEFS_SCSI_GOOD || !cmd->sense_len);
	}
}

static void *exact(size_t len, const uint8_t *from, size_t have)
{
	uint8_t *p = calloc(1, len ? len : 1);

	if (!p)
		abort();
	if (have)
		memcpy(p, from, have < len ? have : len);
	return p;
}

/* What there is to send, and how it comes back: the admin command and the last part with `status`. */
static void finish_one(struct nvefs_sntl_cmd *cmd, const struct nvefs_sntl_request *req, uint16_t status)
{
	PROMISE(cmd->nparts <= NVEFS_SNTL_MAX_PARTS);
	if (cmd->admin_when)
		promise_admin(&cmd->admin);
	if (cmd->admin_when == NVEFS_SNTL_ADMIN_FIRST) {
		nvefs_sntl_admin_done(cmd, status);
		PROMISE(!(status & NVEFS_NVME_STATUS_MASK) || (!cmd->nparts && cmd->status != NVEFS_SCSI_GOOD));
	}
	for (uint32_t i = 0; i < cmd->nparts; i++)
		promise_part(&cmd->part[i], req);
	for (uint32_t i = 0, n = cmd->nparts; i < n; i++)
		PROMISE(nvefs_sntl_complete(cmd, i + 1 < n ? 0 : status) == (i + 1 == n));
	if (cmd->admin_when == NVEFS_SNTL_ADMIN_LAST && cmd->status == NVEFS_SCSI_GOOD)
		nvefs_sntl_admin_done(cmd, status);
	if (nvefs_sntl_wants_offset(cmd)) {
		PROMISE(req->cdb[0] == NVEFS_SCSI_COMPARE_AND_WRITE);
		nvefs_sntl_miscompare(cmd, cmd->part[0].bytes - 1);
	}
	promise_answer(cmd, req);
}

static int command_one(const uint8_t *data, size_t size)
{
	struct nvefs_nvme_ctrl_info ctrl = {.model = "m", .serial = "s", .firmware = "f", .compare = true, .dsm = true,
					    .write_zeroes = true, .verify = true, .fused_compare_write = true,
					    .acwu = 4, .npss = NPSS};
	struct nvefs_nvme_ns_info ns = {.nsze = 1u << 20, .ncap = 1u << 20, .npwg = 1, .npwa = 1, .npdg = 1, .npda = 1};
	struct nvefs_sntl_lu lu = {.ctrl = &ctrl, .ns = &ns, .nsid = 1};
	struct nvefs_sntl_request req = {.max_ranges = data[1] & LU_ONE_RANGE ? 1 : 8};
	struct nvefs_sntl_cmd cmd;
	uint16_t status;
	uint8_t *cdb, *out, *in;
	size_t have;
	int good;

	ns.lba_bytes = data[1] & LU_512 ? 512 : 4096;
	ctrl.vwc = !(data[1] & LU_NO_VWC);
	lu.write_cache = ctrl.vwc && !(data[1] & LU_NO_CACHE);
	lu.cache_default = lu.cache_changeable = ctrl.vwc;
	lu.descriptor_sense = data[1] & LU_DESCRIPTOR;
	lu.max_transfer_bytes = data[1] & LU_SMALL ? 4096 : 1u << 20;
	req.cdb_len = data[2] % 33;
	req.out_len = (size_t)(data[3] | data[4] << 8) % (DATA_MAX + 1);
	req.in_len = (size_t)(data[5] | data[6] << 8) % (DATA_MAX + 1);
	status = (uint16_t)(data[7] | data[8] << 8);
	have = size - HEAD;
	cdb = exact(req.cdb_len, data + HEAD, have);
	have = have > req.cdb_len ? have - req.cdb_len : 0;
	out = exact(req.out_len, data + size - have, have);
	in = exact(req.in_len, NULL, 0);
	req.ranges = exact(req.max_ranges * sizeof(*req.ranges), NULL, 0);
	req.cdb = cdb;
	req.out = data[1] & LU_OUT_SCATTERED ? NULL : out;
	req.in = data[1] & LU_IN_SCATTERED ? NULL : in;
	memset(&cmd, 0xee, sizeof(cmd));
	nvefs_sntl_translate(&lu, &req, &cmd);
	finish_one(&cmd, &req, status);
	good = cmd.status == NVEFS_SCSI_GOOD;
	free(req.ranges);
	free(cdb);
	free(out);
	free(in);
	return good;
}

/* A page that is refused has said nothing; what it says is within its bounds. */
static int log_page_one(const uint8_t *buf, size_t len)
{
	struct nvefs_scsi_health h = {0}, before = h;
	int err = nvefs_log_page_parse(len ? buf[0] & 0x3f : 0, buf, len, &h);

	PROMISE(!err || !memcmp(&h, &before, sizeof(h)));
	PROMISE(h.has_temperature ? h.temperature_celsius != NVEFS_LOG_NO_TEMPERATURE : !h.temperature_celsius);
	PROMISE(h.has_errors || !h.uncorrected_errors);
	return !err;
}

static int reader_one(uint8_t kind, const uint8_t *buf, size_t len)
{
	struct nvefs_scsi_provisioning provisioning;
	struct nvefs_scsi_block_limits limits;
	struct nvefs_scsi_identity id;
	struct nvefs_scsi_capacity cap;
	struct nvefs_scsi_inquiry inq;
	struct nvefs_scsi_mode mode;
	struct nvefs_sense sense = {0};
	char serial[65];

	switch (kind) {
	case SENSE:
		if (nvefs_sense_parse(buf, len, &sense))
			return 0;
		PROMISE(nvefs_sense_key_text(sense.key) && nvefs_asc_text(sense.asc));
		(void)nvefs_sense_errno(NVEFS_SCSI_CHECK_CONDITION, &sense);
		(void)nvefs_sense_retryable(NVEFS_SCSI_CHECK_CONDITION, &sense);
		return 1;
	case INQUIRY:
		return !nvefs_scsi_inquiry_parse(buf, len, &inq) && strlen(inq.vendor) <= 8 &&
		       strlen(inq.product) <= 16 && strlen(inq.revision) <= 4;
	case SUPPORTED:
		return nvefs_vpd_supported_has(buf, len, NVEFS_VPD_BLOCK_LIMITS);
	case SERIAL:
		if (nvefs_vpd_serial_parse(buf, len, serial, sizeof(serial)))
			return 0;
		PROMISE(memchr(serial, 0, sizeof(serial)));
		return 1;
	case IDENTIFICATION:
		if (nvefs_vpd_identification_parse(buf, len, &id))
			return 0;
		PROMISE(memchr(id.t10, 0, sizeof(id.t10)));
		return 1;
	case LIMITS:
		return !nvefs_vpd_limits_parse(buf, len, &limits);
	case PROVISIONING:
		return !nvefs_vpd_provisioning_parse(buf, len, &provisioning);
	case CAPACITY:
		return !nvefs_scsi_capacity16_parse(buf, len, &cap) + !nvefs_scsi_capacity10_parse(buf, len, &cap) > 0;
	case LOG_LIST:
		return nvefs_log_supported_has(buf, len, NVEFS_LOG_EXCEPTIONS);
	case LOG_PAGE:
		return log_page_one(buf, len);
	default:
		return !nvefs_scsi_mode_parse(buf, len, true, &mode) + !nvefs_scsi_mode_parse(buf, len, false, &mode) > 0;
	}
}

int fuzz_one(const uint8_t *data, size_t size)
{
	uint8_t *copy;
	int sound;

	if (size < 2 || data[0] >= KINDS || size > FUZZ_INPUT_MAX)
		return 0;
	if (data[0] == COMMAND)
		return size >= HEAD ? command_one(data, size) : 0;
	copy = exact(size - 1, data + 1, size - 1);
	sound = reader_one(data[0], copy, size - 1);
	free(copy);
	return sound;
}

/* ---- Seeds ---- */

static uint32_t page_seed(uint8_t kind, uint8_t *buf)
{
	const struct nvefs_sense sense = {.key = NVEFS_SENSE_ILLEGAL_REQUEST, .asc = NVEFS_ASC_FIELD_IN_CDB,
					  .has_field = true, .in_cdb = true, .byte = 3};
	const struct nvefs_scsi_inquiry inq = {.vendor = "NVMe", .product = "p", .revision = "1"};
	const struct nvefs_scsi_identity id = {.nguid = {1}, .eui64 = {2}, .uuid = {3}, .t10 = "NVMe    x"};
	const struct nvefs_scsi_block_limits limits = {.max_transfer = 32, .max_unmap = 9, .max_unmap_descs = 256};
	const struct nvefs_scsi_provisioning prov = {.unmap = true, .type = 2};
	const struct nvefs_scsi_capacity cap = {.nlbas = 1000, .lba_bytes = 4096, .lbpme = true};
	const struct nvefs_scsi_mode mode = {.has_caching = true, .write_cache = true, .nlbas = 1000, .lba_bytes = 512};
	const struct nvefs_scsi_mode_ask ask = {.ten = true, .page = NVEFS_MODE_CACHING};
	static const uint8_t log_list[] = {0, 0, 0, 4, 0x00, 0x03, 0x0d, 0x2f};
	/* Of errors in reading, since its counters may have any width. */
	static const uint8_t log_page[] = {0x03, 0, 0, 14, 0, 5, 3, 2, 1, 0, 0, 6, 3, 4, 0, 0, 0, 7};

	switch (kind) {
	case LOG_LIST:
		memcpy(buf, log_list, sizeof(log_list));
		return sizeof(log_list);
	case LOG_PAGE:
		memcpy(buf, log_page, sizeof(log_page));
		return sizeof(log_page);
	case SENSE:
		return nvefs_sense_build(&sense, false, buf);
	case INQUIRY:
		return nvefs_scsi_inquiry_build(&inq, buf);
	case SUPPORTED:
		return nvefs_vpd_supported_build(buf);
	case SERIAL:
		return nvefs_vpd_serial_build("SERIAL", buf);
	case IDENTIFICATION:
		return nvefs_vpd_identification_build(&id, buf);
	case LIMITS:
		return nvefs_vpd_limits_build(&limits, buf);
	case PROVISIONING:
		return nvefs_vpd_provisioning_build(&prov, buf);
	case CAPACITY:
		return nvefs_scsi_capacity16_build(&cap, buf);
	default:
		return nvefs_scsi_mode_build(&mode, &ask, buf);
	}
}

/* What a format's count means in bytes is not known here: a whole buffer of data in both directions serves all. */
static size_t command_seed(size_t format, uint8_t *ret)
{
	const struct nvefs_cdb_format *f = nvefs_cdb_format_at(format);
	struct nvefs_cdb c = {.opcode = f->opcode, .service_action = f->service_action, .count = 1};
	int len;

	switch (f->opcode) {
	case NVEFS_SCSI_WRITE_10:
	case NVEFS_SCSI_WRITE_12:
	case NVEFS_SCSI_WRITE_16:
	case NVEFS_SCSI_WRITE_6:
	case NVEFS_SCSI_WRITE_SAME_10:
	case NVEFS_SCSI_WRITE_SAME_16:
	case NVEFS_SCSI_READ_10:
	case NVEFS_SCSI_READ_12:
	case NVEFS_SCSI_READ_16:
	case NVEFS_SCSI_READ_6:
	case NVEFS_SCSI_VERIFY_10:
	case NVEFS_SCSI_VERIFY_12:
	case NVEFS_SCSI_VERIFY_16:
	case NVEFS_SCSI_COMPARE_AND_WRITE:
		break;
	case NVEFS_SCSI_UNMAP:
		c.count = 40;
		break;
	case NVEFS_SCSI_MODE_SELECT_6:
	case NVEFS_SCSI_MODE_SELECT_10:
		c.pf = true;
		c.count = f->len == 6 ? 24 : 28;
		break;
	default:
		c.count = f->count_width > 1 ? 512 : f->count_width ? 252 : 0;
	}
	c.start = true;
	c.pc = f->opcode == NVEFS_SCSI_LOG_SENSE ? 1 : 0; /* cumulative values */
	c.page = f->opcode == NVEFS_SCSI_MODE_SENSE_6 || f->opcode == NVEFS_SCSI_MODE_SENSE_10 ? NVEFS_MODE_ALL : 0;
	memset(ret, 0, HEAD + NVEFS_CDB_MAX + DATA_MAX / 2);
	len = nvefs_cdb_build(&c, ret + HEAD);
	if (len < 0)
		len = 1; /* just the opcode */
	ret[2] = (uint8_t)len;
	ret[4] = ret[6] = DATA_MAX / 2 >> 8; /* one block out, one in; a second block for COMPARE AND WRITE */
	if (f->opcode == NVEFS_SCSI_COMPARE_AND_WRITE)
		ret[4] = DATA_MAX >> 8;
	if (c.pf) { /* the caching page, with WCE off */
		ret[3] = (uint8_t)c.count;
		ret[4] = 0;
		ret[HEAD + len + c.count - 20] = 0x08;
		ret[HEAD + len + c.count - 19] = 0x12;
	}
	if (f->opcode == NVEFS_SCSI_UNMAP) {
		ret[3] = 40; /* two descriptors of five blocks each */
		ret[4] = 0;
		ret[HEAD + len + 1] = 38;
		ret[HEAD + len + 3] = 32;
		ret[HEAD + len + 19] = ret[HEAD + len + 35] = 5;
	}
	return HEAD + (size_t)len + 64;
}

size_t fuzz_seed(unsigned int number, uint8_t *ret_input)
{
	size_t nformats = 0;

	while (nvefs_cdb_format_at(nformats))
		nformats++;
	if (number >= nformats + KINDS - 1)
		return 0;
	if (number < nformats)
		return command_seed(number, ret_input);
	ret_input[0] = (uint8_t)(number - nformats + 1);
	return 1 + page_seed(ret_input[0], ret_input + 1);
}
