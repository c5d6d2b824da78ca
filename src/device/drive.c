/* SPDX-License-Identifier: MIT */
#include "device/drive.h"

#include <stdio.h>
#include <string.h>

#include "scsi/designator.h"

static uint32_t lbas_bytes(uint64_t lbas, const struct nvefs_nvme_ns_info *ns)
{
	uint64_t bytes = lbas * ns->lba_bytes;

	return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

static uint32_t limit_bytes(uint8_t exponent)
{
	return exponent ? nvefs_nvme_limit_bytes(exponent, 12) : 0;
}

static void set_controller(struct nvefs_drive_nvme *n, const struct nvefs_nvme_ctrl_info *c,
			   const struct nvefs_nvme_ns_info *ns)
{
	memcpy(n->model, c->model, sizeof(n->model));
	memcpy(n->serial, c->serial, sizeof(n->serial));
	memcpy(n->firmware, c->firmware, sizeof(n->firmware));
	memcpy(n->subnqn, c->subnqn, sizeof(n->subnqn));
	n->vendor_id = c->vid;
	n->controller_id = c->cntlid;
	n->version = c->ver;
	n->mdts_bytes = limit_bytes(c->mdts);
	n->awun_bytes = lbas_bytes(c->awun, ns);
	n->awupf_bytes = lbas_bytes(c->awupf, ns);
	n->acwu_bytes = lbas_bytes(c->acwu, ns);
	n->wzsl_bytes = limit_bytes(c->wzsl);
	n->dmrl_ranges = c->dmrl;
	n->dmrsl_bytes = (uint64_t)c->dmrsl * ns->lba_bytes;
	n->dmsl_bytes = c->dmsl > UINT64_MAX / ns->lba_bytes ? UINT64_MAX : c->dmsl * ns->lba_bytes;
	n->oncs = c->oncs;
	for (int i = 0; i < 3; i++)
		n->crdt_ms[i] = c->crdt[i] * 100u;
}

static void set_namespace(struct nvefs_drive_nvme *n, const struct nvefs_nvme_ns_info *ns)
{
	n->command_set = ns->csi;
	memcpy(n->nguid, ns->nguid, sizeof(n->nguid));
	memcpy(n->eui64, ns->eui64, sizeof(n->eui64));
	memcpy(n->uuid, ns->uuid, sizeof(n->uuid));
	n->size_bytes = ns->nsze * ns->lba_bytes;
	n->capacity_bytes = ns->ncap * ns->lba_bytes;
	n->used_bytes = ns->nuse > ns->nsze ? n->size_bytes : ns->nuse * ns->lba_bytes;
	n->lba_bytes = ns->lba_bytes;
	n->lba_format = ns->format;
	n->lba_formats = ns->nformats;
	n->npwg_bytes = lbas_bytes(ns->npwg, ns);
	n->npwa_bytes = lbas_bytes(ns->npwa, ns);
	n->npdg_bytes = lbas_bytes(ns->npdg, ns);
	n->npda_bytes = lbas_bytes(ns->npda, ns);
	n->nows_bytes = lbas_bytes(ns->nows, ns);
	n->noiob_bytes = lbas_bytes(ns->noiob, ns);
	n->nawun_bytes = lbas_bytes(ns->nawun, ns);
	n->nawupf_bytes = lbas_bytes(ns->nawupf, ns);
	n->nacwu_bytes = lbas_bytes(ns->nacwu, ns);
	n->nabsn_bytes = lbas_bytes(ns->nabsn, ns);
	n->nabspf_bytes = lbas_bytes(ns->nabspf, ns);
	n->nabo_bytes = lbas_bytes(ns->nabo, ns);
	n->dlfeat = ns->dlfeat;
	n->endurance_group = ns->endgid;
	n->shared = ns->shared;
	n->thin = ns->thin;
	n->write_protected = ns->write_protected;
	n->not_ready = ns->not_ready;
}

void nvefs_drive_set_nvme(struct nvefs_drive *d, const struct nvefs_nvme_ctrl_info *ctrl,
			  const struct nvefs_nvme_ns_info *ns, uint32_t nsid)
{
	d->nvme.there = true;
	d->nvme.nsid = nsid;
	set_controller(&d->nvme, ctrl, ns);
	set_namespace(&d->nvme, ns);
}

void nvefs_drive_set_transfer(struct nvefs_drive *d, uint32_t max_transfer_blks)
{
	const struct {
		const char *name;
		uint64_t bytes;
	} limits[] = {
	    {"MDTS", d->nvme.mdts_bytes},
	    {"max_hw_sectors_kb", d->nvme.kernel_transfer_bytes},
	    {"max_segments", d->nvme.kernel_segments_bytes},
	    {"VPD B0h", d->scsi.max_transfer_bytes},
	    {"kernel", d->scsi.kernel_transfer_bytes},
	};
	uint64_t least = UINT64_MAX;

	d->transfer_bytes = max_transfer_blks << NVEFS_BLOCK_SHIFT;
	snprintf(d->transfer_limit, sizeof(d->transfer_limit), "command");
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		if (!limits[i].bytes || limits[i].bytes >= least ||
		    limits[i].bytes >> NVEFS_BLOCK_SHIFT > max_transfer_blks)
			continue;
		least = limits[i].bytes;
		snprintf(d->transfer_limit, sizeof(d->transfer_limit), "%s", limits[i].name);
	}
}

const char *nvefs_drive_warning(uint16_t *critical_warning)
{
	static const struct {
		uint16_t bit;
		const char *text;
	} warnings[] = {
	    {NVEFS_WARN_SPARE, "available spare is below its threshold"},
	    {NVEFS_WARN_TEMPERATURE, "temperature is out of its bounds"},
	    {NVEFS_WARN_RELIABILITY, "reliability is degraded by media or internal errors"},
	    {NVEFS_WARN_READ_ONLY, "medium is read-only"},
	    {NVEFS_WARN_BACKUP, "backup of the volatile memory has failed"},
	    {NVEFS_WARN_MEMORY_REGION, "persistent memory region is read-only or unreliable"},
	    {NVEFS_WARN_FAILING, "failure is predicted"},
	};

	for (size_t i = 0; i < sizeof(warnings) / sizeof(warnings[0]); i++) {
		if (!(*critical_warning & warnings[i].bit))
			continue;
		*critical_warning &= (uint16_t)~warnings[i].bit;
		return warnings[i].text;
	}
	if (!*critical_warning)
		return NULL;
	*critical_warning = 0;
	return "a warning that is not known here";
}

/* ---- Facts ---- */

/* A member of a struct whose name is the key. */
struct member {
	const char *key;
	enum nvefs_fact_kind kind;
	size_t offset, size;
};
#define MEMBER(type, name, kind)                                                                   \
	{                                                                                          \
		#name, kind, offsetof(struct type, name), sizeof(((struct type *)NULL)->name)      \
	}

static int64_t load(const void *at, size_t size)
{
	uint64_t v;

	switch (size) {
	case 1:
		v = *(const uint8_t *)at;
		break;
	case 2:
		v = *(const uint16_t *)at;
		break;
	case 4:
		v = *(const uint32_t *)at;
		break;
	default:
		v = *(const uint64_t *)at;
		break;
	}
	return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

static void tell_members(const struct member *m, size_t n, const void *base, nvefs_fact_fn *fn, void *arg)
{
	for (size_t i = 0; i < n; i++) {
		const char *at = (const char *)base + m[i].offset;
		struct nvefs_fact f = {.key = m[i].key, .kind = m[i].kind};

		if (f.kind == NVEFS_FACT_TEXT)
			f.text = at;
		else
			f.value = load(at, m[i].size);
		fn(arg, &f);
	}
}
#define TELL(members, base, fn, arg) tell_members(members, sizeof(members) / sizeof((members)[0]), base, fn, arg)

static void tell_text(const char *key, const char *text, nvefs_fact_fn *fn, void *arg)
{
	fn(arg, &(struct nvefs_fact){.key = key, .kind = NVEFS_FACT_TEXT, .text = text});
}

/* As hexadecimal digits; all zeros are "". */
static void tell_hex(const char *key, const uint8_t *bytes, size_t len, bool uuid, nvefs_fact_fn *fn, void *arg)
{
	char text[64] = "", *p = text;
	bool any = false;

	for (size_t i = 0; i < len; i++) {
		any |= bytes[i] != 0;
		p += sprintf(p, "%s%02x", uuid && (i == 4 || i == 6 || i == 8 || i == 10) ? "-" : "", bytes[i]);
	}
	tell_text(key, any ? text : "", fn, arg);
}

static void append(char *list, size_t len, const char *word)
{
	size_t at = strlen(list);

	snprintf(list + at, len - at, "%s%s", at ? ", " : "", word);
}

static void tell_bits(const char *key, uint32_t value, const char *const *names, uint32_t nnames,
		      nvefs_fact_fn *fn, void *arg)
{
	char list[512] = "", number[16];

	for (uint32_t bit = 0; bit < 32; bit++) {
		if (!(value >> bit & 1))
			continue;
		snprintf(number, sizeof(number), "bit %u", bit);
		append(list, sizeof(list), bit < nnames && names[bit] ? names[bit] : number);
	}
	fn(arg, &(struct nvefs_fact){.key = key, .kind = NVEFS_FACT_LIST, .text = list});
}
#define TELL_BITS(key, value, names, fn, arg)                                                      \
	tell_bits(key, value, names, sizeof(names) / sizeof((names)[0]), fn, arg)

static void tell_cache(uint8_t cache, nvefs_fact_fn *fn, void *arg)
{
	static const char *const words[] = {
	    [NVEFS_CACHE_NONE] = "none", [NVEFS_CACHE_OFF] = "off", [NVEFS_CACHE_ON] = "on"};

	tell_text("volatile_write_cache", words[cache], fn, arg);
}

static void tell_transfer(const struct nvefs_drive *d, nvefs_fact_fn *fn, void *arg)
{
	fn(arg, &(struct nvefs_fact){.key = "transfer_bytes", .kind = NVEFS_FACT_NUMBER, .value = d->transfer_bytes});
	tell_text("transfer_limited_by", d->transfer_limit, fn, arg);
}

#define N(name) MEMBER(nvefs_drive_nvme, name, NVEFS_FACT_NUMBER)
#define T(name) MEMBER(nvefs_drive_nvme, name, NVEFS_FACT_TEXT)
#define B(name) MEMBER(nvefs_drive_nvme, name, NVEFS_FACT_BOOL)

static void tell_identity(const struct nvefs_drive_nvme *n, nvefs_fact_fn *fn, void *arg)
{
	static const struct member who[] = {T(model), T(serial), T(firmware), T(subnqn), N(vendor_id)},
				   where[] = {N(controller_id), N(nsid)};
	static const char *const sets[] = {"NVM", "key value", "zoned"};
	char version[32];

	TELL(who, n, fn, arg);
	snprintf(version, sizeof(version), "%u.%u.%u", n->version >> 16, n->version >> 8 & 0xff, n->version & 0xff);
	tell_text("nvme_version", version, fn, arg);
	TELL(where, n, fn, arg);
	tell_text("command_set", n->command_set < 3 ? sets[n->command_set] : "other", fn, arg);
	tell_hex("nguid", n->nguid, sizeof(n->nguid), false, fn, arg);
	tell_hex("eui64", n->eui64, sizeof(n->eui64), false, fn, arg);
	tell_hex("uuid", n->uuid, sizeof(n->uuid), true, fn, arg);
}

static void tell_abilities(const struct nvefs_drive_nvme *n, nvefs_fact_fn *fn, void *arg)
{
	static const char *const oncs[] = {
	    "compare", "write-uncorrectable", "dataset-management", "write-zeroes",
	    "save-select", "reservations", "timestamp", "verify", "copy"};
	static const char *const pages[] = {"cns-05h", "cns-06h", "cns-08h"};
	static const char *const reads[] = {"not reported", "zeros", "ones"};
	static const struct member rest[] = {B(shared), B(thin), B(write_protected), N(endurance_group), N(io_queues),
					     N(hw_queues)};

	TELL_BITS("optional_commands", n->oncs, oncs, fn, arg);
	tell_text("deallocated_reads", (n->dlfeat & 7) < 3 ? reads[n->dlfeat & 7] : "reserved", fn, arg);
	fn(arg, &(struct nvefs_fact){.key = "write_zeroes_deallocates",
				     .kind = NVEFS_FACT_BOOL,
				     .value = n->dlfeat >> 3 & 1});
	TELL(rest, n, fn, arg);
	fn(arg, &(struct nvefs_fact){.key = "ready", .kind = NVEFS_FACT_BOOL, .value = !n->not_ready});
	TELL_BITS("identify_pages", (uint32_t)(n->cns5 | n->cns6 << 1 | n->cns8 << 2), pages, fn, arg);
}

void nvefs_drive_nvme_facts(const struct nvefs_drive *d, nvefs_fact_fn *fn, void *arg)
{
	static const struct member size[] = {N(size_bytes), N(capacity_bytes), N(used_bytes), N(lba_bytes),
					     N(lba_format), N(lba_formats)},
				   limits[] = {
				       N(mdts_bytes),	N(kernel_transfer_bytes), N(kernel_segments_bytes),
				       N(npwg_bytes),	N(npwa_bytes),		  N(npdg_bytes),
				       N(npda_bytes),	N(nows_bytes),		  N(noiob_bytes),
				       N(nawun_bytes),	N(nawupf_bytes),	  N(nacwu_bytes),
				       N(nabsn_bytes),	N(nabspf_bytes),	  N(nabo_bytes),
				       N(awun_bytes),	N(awupf_bytes),		  N(acwu_bytes),
				       N(wzsl_bytes),	N(dmrl_ranges),		  N(dmrsl_bytes),
				       N(dmsl_bytes),
				   };

	tell_identity(&d->nvme, fn, arg);
	TELL(size, &d->nvme, fn, arg);
	tell_cache(d->nvme.cache, fn, arg);
	tell_transfer(d, fn, arg);
	TELL(limits, &d->nvme, fn, arg);
	tell_abilities(&d->nvme, fn, arg);
}

#undef N
#undef T
#undef B
#define N(name) MEMBER(nvefs_drive_scsi, name, NVEFS_FACT_NUMBER)
#define T(name) MEMBER(nvefs_drive_scsi, name, NVEFS_FACT_TEXT)
#define B(name) MEMBER(nvefs_drive_scsi, name, NVEFS_FACT_BOOL)

static void tell_designators(const struct nvefs_drive_scsi *s, nvefs_fact_fn *fn, void *arg)
{
	char list[1024] = "", one[256];
	size_t pos = 4;

	while (nvefs_vpd_designator_text(s->vpd83, s->vpd83_len, &pos, one, sizeof(one)))
		append(list, sizeof(list), one);
	fn(arg, &(struct nvefs_fact){.key = "designators", .kind = NVEFS_FACT_LIST, .text = list});
}

void nvefs_drive_scsi_facts(const struct nvefs_drive *d, nvefs_fact_fn *fn, void *arg)
{
	static const struct member
	    who[] = {T(vendor), T(product), T(revision), T(serial)},
	    size[] = {N(size_bytes), N(lba_bytes), N(physical_block_bytes)},
	    rest[] = {B(cache_changeable),   B(dpofua),		     B(write_protected),       B(has_b0),
		      N(max_transfer_bytes), N(optimal_transfer_bytes), N(granularity_bytes),  N(max_unmap_bytes),
		      N(max_unmap_descriptors), N(unmap_granularity_bytes), N(unmap_alignment_bytes),
		      N(max_write_same_bytes), N(kernel_transfer_bytes), B(has_b1), N(rotation), B(has_b2),
		      B(unmap), B(write_same_unmap), B(reads_zeros)};
	static const char *const provisioning[] = {"full", "resource", "thin"};

	TELL(who, &d->scsi, fn, arg);
	tell_designators(&d->scsi, fn, arg);
	TELL(size, &d->scsi, fn, arg);
	tell_cache(d->scsi.cache, fn, arg);
	tell_transfer(d, fn, arg);
	TELL(rest, &d->scsi, fn, arg);
	tell_text("provisioning", d->scsi.provisioning < 3 ? provisioning[d->scsi.provisioning] : "other", fn, arg);
}

#undef N
#define N(name) MEMBER(nvefs_drive_health, name, NVEFS_FACT_NUMBER)

static void tell_exception(uint16_t exception, nvefs_fact_fn *fn, void *arg)
{
	char text[16];

	snprintf(text, sizeof(text), "%02Xh/%02Xh", exception >> 8, exception & 0xff);
	tell_text("informational_exception", exception ? text : "none", fn, arg);
}

void nvefs_drive_health_facts(const struct nvefs_drive_health *h, nvefs_fact_fn *fn, void *arg)
{
	static const char *const warnings[] = {"spare", "temperature", "reliability", "read-only", "backup",
					       "memory-region", NULL, NULL, "failing"};
	static const struct {
		size_t has;
		struct member m;
	} facts[] = {
#define IF(name, member) {offsetof(struct nvefs_drive_health, has_##name), N(member)}
	    IF(spare, spare_percent),	    IF(spare, spare_threshold_percent),
	    IF(used, used_percent),	    IF(traffic, read_bytes),
	    IF(traffic, written_bytes),	    IF(traffic, read_commands),
	    IF(traffic, write_commands),    IF(usage, busy_minutes),
	    IF(usage, power_cycles),	    IF(power_on, power_on_hours),
	    IF(usage, unsafe_shutdowns),    IF(media_errors, media_errors),
	    IF(usage, error_log_entries),   IF(start_stop, start_stop_cycles),
	    IF(media_written, media_written_bytes),
#undef IF
	};

	TELL_BITS("critical_warning", h->critical_warning, warnings, fn, arg);
	if (h->has_exception)
		tell_exception(h->exception, fn, arg);
	if (h->has_temperature)
		fn(arg, &(struct nvefs_fact){.key = "temperature_celsius",
					     .kind = NVEFS_FACT_NUMBER,
					     .value = h->temperature_celsius});
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		if (*(const bool *)((const char *)h + facts[i].has))
			tell_members(&facts[i].m, 1, h, fn, arg);
}

static void add_percent(const char *name, uint8_t percent, char *buf, size_t len)
{
	char one[32];

	snprintf(one, sizeof(one), "%s %u %%", name, percent);
	append(buf, len, one);
}

void nvefs_drive_wear_text(const struct nvefs_drive_health *h, char *buf, size_t len)
{
	char one[32];

	buf[0] = '\0';
	if (h->has_spare) {
		add_percent("spare", h->spare_percent, buf, len);
		add_percent("threshold", h->spare_threshold_percent, buf, len);
	}
	if (h->has_used)
		add_percent("used", h->used_percent, buf, len);
	if (h->has_exception) {
		snprintf(one, sizeof(one), "ASC %02Xh, ASCQ %02Xh", h->exception >> 8, h->exception & 0xff);
		append(buf, len, one);
	}
	if (!buf[0])
		append(buf, len, "nothing more is told");
}
