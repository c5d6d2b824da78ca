/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include "nvme/identify.h"

/* Blank-padded ASCII of a fixed length to a string; a device may send any bytes. */
static void text_copy(char *to, const char *from, size_t len)
{
	while (len > 0 && (from[len - 1] == ' ' || from[len - 1] == '\0'))
		len--;
	for (size_t i = 0; i < len; i++)
		to[i] = from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?';
	to[len] = '\0';
}

void nvefs_nvme_ctrl_parse(const struct nvefs_nvme_id_ctrl *id, struct nvefs_nvme_ctrl_info *ret)
{
	uint16_t oncs = le16_get(id->oncs);

	text_copy(ret->model, id->mn, sizeof(id->mn));
	text_copy(ret->serial, id->sn, sizeof(id->sn));
	text_copy(ret->firmware, id->fr, sizeof(id->fr));
	text_copy(ret->subnqn, id->subnqn, strnlen(id->subnqn, sizeof(id->subnqn)));
	ret->vid = le16_get(id->vid);
	ret->cntlid = le16_get(id->cntlid);
	ret->oacs = le16_get(id->oacs);
	ret->oncs = oncs;
	ret->warning_kelvin = le16_get(id->wctemp);
	ret->endgidmax = le16_get(id->endgidmax);
	ret->ver = le32_get(id->ver);
	ret->nn = le32_get(id->nn);
	ret->mdts = id->mdts;
	ret->sqes = id->sqes;
	ret->cqes = id->cqes;
	ret->lpa = id->lpa;
	ret->npss = id->npss;
	ret->compare = oncs & NVEFS_NVME_ONCS_COMPARE;
	ret->write_uncorrectable = oncs & NVEFS_NVME_ONCS_WRITE_UNCORRECTABLE;
	ret->dsm = oncs & NVEFS_NVME_ONCS_DSM;
	ret->write_zeroes = oncs & NVEFS_NVME_ONCS_WRITE_ZEROES;
	ret->verify = oncs & NVEFS_NVME_ONCS_VERIFY;
	ret->fused_compare_write = le16_get(id->fuses) & NVEFS_NVME_FUSES_COMPARE_WRITE;
	ret->vwc = id->vwc & NVEFS_NVME_VWC_PRESENT;
	ret->sgl = le32_get(id->sgls) & 3;
	ret->awun = le16_get(id->awun) + 1u;
	ret->awupf = le16_get(id->awupf) + 1u;
	ret->acwu = ret->fused_compare_write ? le16_get(id->acwu) + 1u : 0;
	for (int i = 0; i < 3; i++)
		ret->crdt[i] = le16_get(id->crdt[i]);
}

void nvefs_nvme_ctrl_parse_nvm(const struct nvefs_nvme_id_ctrl_nvm *id,
			       struct nvefs_nvme_ctrl_info *ret)
{
	ret->vsl = id->vsl;
	ret->wzsl = id->wzsl;
	ret->dmrl = id->dmrl;
	ret->dmrsl = le32_get(id->dmrsl);
	ret->dmsl = le64_get(id->dmsl);
}

/* The index of the format in use is split: bits 3:0 and, with more than 16 formats, 6:5. */
static uint32_t ns_format_index(const struct nvefs_nvme_id_ns *id)
{
	uint32_t index = id->flbas & 0x0f;

	if (id->nlbaf > 15)
		index |= (uint32_t)(id->flbas & 0x60) >> 1;
	return index;
}

static void ns_parse_atomic(const struct nvefs_nvme_id_ns *id, struct nvefs_nvme_ns_info *ret)
{
	bool own = id->nsfeat & NVEFS_NVME_NSFEAT_ATOMIC;
	uint32_t nabsn = le16_get(id->nabsn), nabspf = le16_get(id->nabspf);

	ret->nawun = own ? le16_get(id->nawun) + 1u : 0;
	ret->nawupf = own ? le16_get(id->nawupf) + 1u : 0;
	ret->nacwu = own ? le16_get(id->nacwu) + 1u : 0;
	ret->nabsn = nabsn ? nabsn + 1 : 0;
	ret->nabspf = nabspf ? nabspf + 1 : 0;
	ret->nabo = nabsn || nabspf ? le16_get(id->nabo) : 0;
}

static void ns_parse_performance(const struct nvefs_nvme_id_ns *id, struct nvefs_nvme_ns_info *ret)
{
	bool valid = id->nsfeat & NVEFS_NVME_NSFEAT_OPTPERF;

	ret->npwg = valid ? le16_get(id->npwg) + 1u : 1;
	ret->npwa = valid ? le16_get(id->npwa) + 1u : 1;
	ret->npdg = valid ? le16_get(id->npdg) + 1u : 1;
	ret->npda = valid ? le16_get(id->npda) + 1u : 1;
	ret->nows = valid ? le16_get(id->nows) + 1u : 0;
	ret->noiob = le16_get(id->noiob);
}

int nvefs_nvme_ns_parse(const struct nvefs_nvme_id_ns *id, struct nvefs_nvme_ns_info *ret)
{
	uint32_t index = ns_format_index(id);
	uint64_t nsze = le64_get(id->nsze), ncap = le64_get(id->ncap);
	const struct nvefs_nvme_lbaf *f;

	if (nsze == 0 && ncap == 0 && id->lbaf[0].lbads == 0)
		return -ENODEV;
	if (index > id->nlbaf || index > 63 || nsze == 0 || ncap > nsze)
		return -EUCLEAN;
	f = &id->lbaf[index];
	if (f->lbads < 9 || f->lbads > 16 || nsze > UINT64_MAX >> f->lbads)
		return -EUCLEAN;
	ret->nsze = nsze;
	ret->ncap = ncap;
	ret->nuse = le64_get(id->nuse);
	ret->lba_bytes = 1u << f->lbads;
	ret->format = (uint8_t)index;
	ret->nformats = id->nlbaf < 63 ? id->nlbaf + 1 : 64;
	ret->metadata_bytes = le16_get(f->ms);
	ret->metadata_extended = ret->metadata_bytes && (id->flbas & 0x10);
	ret->pi_type = id->dps & 7;
	ret->thin = id->nsfeat & NVEFS_NVME_NSFEAT_THIN;
	ret->dealloc_error = id->nsfeat & NVEFS_NVME_NSFEAT_DEALLOC_ERR;
	ret->dlfeat = id->dlfeat;
	ret->shared = id->nmic & 1;
	ret->write_protected = id->nsattr & NVEFS_NVME_NSATTR_WRITE_PROTECTED;
	ret->endgid = le16_get(id->endgid);
	memcpy(ret->nguid, id->nguid, sizeof(ret->nguid));
	memcpy(ret->eui64, id->eui64, sizeof(ret->eui64));
	ns_parse_atomic(id, ret);
	ns_parse_performance(id, ret);
	return 0;
}

void nvefs_nvme_ns_parse_independent(const struct nvefs_nvme_id_ns_independent *id,
				     struct nvefs_nvme_ns_info *ret)
{
	ret->shared |= id->nmic & 1;
	ret->write_protected |= (id->nsattr & NVEFS_NVME_NSATTR_WRITE_PROTECTED) != 0;
	if (le16_get(id->endgid))
		ret->endgid = le16_get(id->endgid);
	ret->not_ready = !(id->nstat & NVEFS_NVME_NSTAT_READY);
}

int nvefs_nvme_ns_parse_descs(const void *data, size_t len, struct nvefs_nvme_ns_info *ret)
{
	const uint8_t *p = data;
	size_t pos = 0;

	while (len - pos >= sizeof(struct nvefs_nvme_ns_desc) && p[pos] != 0) {
		uint8_t type = p[pos], id_len = p[pos + 1];
		const uint8_t *id = p + pos + sizeof(struct nvefs_nvme_ns_desc);

		pos += sizeof(struct nvefs_nvme_ns_desc);
		if (id_len == 0 || id_len > len - pos)
			return -EUCLEAN;
		if (type == NVEFS_NVME_NIDT_EUI64 && id_len == 8)
			memcpy(ret->eui64, id, 8);
		else if (type == NVEFS_NVME_NIDT_NGUID && id_len == 16)
			memcpy(ret->nguid, id, 16);
		else if (type == NVEFS_NVME_NIDT_UUID && id_len == 16)
			memcpy(ret->uuid, id, 16);
		else if (type == NVEFS_NVME_NIDT_CSI && id_len == 1)
			ret->csi = id[0];
		else if (type <= NVEFS_NVME_NIDT_UUID)
			return -EUCLEAN;
		pos += id_len;
	}
	return 0;
}

bool nvefs_nvme_ns_desc_put(void *data, size_t len, size_t *pos, uint8_t type, const void *id,
			    uint8_t id_len)
{
	struct nvefs_nvme_ns_desc d = {.type = type, .len = id_len};
	uint8_t *p = data;

	if (*pos > len || len - *pos < sizeof(d) + id_len)
		return false;
	memcpy(p + *pos, &d, sizeof(d));
	memcpy(p + *pos + sizeof(d), id, id_len);
	*pos += sizeof(d) + id_len;
	return true;
}

uint32_t nvefs_nvme_limit_bytes(uint8_t exponent, uint32_t page_shift)
{
	if (exponent == 0 || exponent + page_shift >= 32)
		return UINT32_MAX;
	return 1u << (exponent + page_shift);
}
