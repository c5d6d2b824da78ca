/* SPDX-License-Identifier: MIT */
/* READ CAPACITY data and mode parameters. */
#include <errno.h>
#include <string.h>
#include <nvefs/endian.h>
#include "scsi/pages.h"

uint32_t nvefs_scsi_capacity16_build(const struct nvefs_scsi_capacity *c,
				     uint8_t buf[NVEFS_CAPACITY_16_BYTES])
{
	memset(buf, 0, NVEFS_CAPACITY_16_BYTES);
	be64_store(buf, c->nlbas - 1);
	be32_store(buf + 8, c->lba_bytes);
	buf[12] = c->protection ? 0x01 : 0;
	buf[13] = c->physical_exponent & 0xf;
	buf[14] = (uint8_t)((c->lbpme ? 0x80 : 0) | (c->lbprz ? 0x40 : 0));
	return NVEFS_CAPACITY_16_BYTES;
}

uint32_t nvefs_scsi_capacity10_build(const struct nvefs_scsi_capacity *c,
				     uint8_t buf[NVEFS_CAPACITY_10_BYTES])
{
	uint64_t last = c->nlbas - 1;

	be32_store(buf, last > UINT32_MAX ? UINT32_MAX : (uint32_t)last);
	be32_store(buf + 4, c->lba_bytes);
	return NVEFS_CAPACITY_10_BYTES;
}

int nvefs_scsi_capacity16_parse(const uint8_t *buf, size_t len, struct nvefs_scsi_capacity *ret)
{
	if (len < 12 || be64_load(buf) == UINT64_MAX)
		return -EUCLEAN;
	memset(ret, 0, sizeof(*ret));
	ret->nlbas = be64_load(buf) + 1;
	ret->lba_bytes = be32_load(buf + 8);
	if (len >= 16) {
		ret->protection = buf[12] & 0x01;
		ret->physical_exponent = buf[13] & 0xf;
		ret->lbpme = buf[14] & 0x80;
		ret->lbprz = buf[14] & 0x40;
	}
	return 0;
}

int nvefs_scsi_capacity10_parse(const uint8_t *buf, size_t len, struct nvefs_scsi_capacity *ret)
{
	if (len < 8)
		return -EUCLEAN;
	memset(ret, 0, sizeof(*ret));
	ret->nlbas = (uint64_t)be32_load(buf) + 1;
	ret->lba_bytes = be32_load(buf + 4);
	return 0;
}

static uint32_t block_descriptor_put(const struct nvefs_scsi_mode *m, bool llbaa, uint8_t *p)
{
	if (llbaa) {
		be64_store(p, m->nlbas);
		be32_store(p + 12, m->lba_bytes);
		return 16;
	}
	be32_store(p, m->nlbas > UINT32_MAX ? UINT32_MAX : (uint32_t)m->nlbas);
	be24_store(p + 5, m->lba_bytes);
	return 8;
}

static bool write_cache_bit(const struct nvefs_scsi_mode *m, uint8_t pc)
{
	return pc == NVEFS_MODE_CHANGEABLE ? m->write_cache_changeable
	       : pc == NVEFS_MODE_DEFAULT  ? m->write_cache_default
					   : m->write_cache;
}

/* But for WCE nothing can be changed: the changeable form of a page is zeros. */
uint32_t nvefs_scsi_mode_page_build(const struct nvefs_scsi_mode *m, uint8_t pc, uint8_t page,
				    uint8_t *p)
{
	switch (page) {
	case NVEFS_MODE_CACHING:
		p[1] = 0x12;
		p[2] = write_cache_bit(m, pc) ? 0x04 : 0;
		break;
	case NVEFS_MODE_CONTROL:
		p[1] = 0x0a;
		if (pc != NVEFS_MODE_CHANGEABLE) {
			p[2] = m->descriptor_sense ? 0x06 : 0x02; /* GLTSD: no log is saved */
			p[3] = 0x10; /* commands may be reordered freely */
			p[5] = 0x40; /* TAS: who is aborted is told so */
			be16_store(p + 8, 0xffff); /* busy for as long as it takes */
		}
		break;
	case NVEFS_MODE_POWER:
		p[1] = 0x26; /* NVMe has no such timers */
		break;
	default:
		return 0;
	}
	p[0] = page;
	return 2u + p[1];
}

uint32_t nvefs_scsi_mode_build(const struct nvefs_scsi_mode *m,
			       const struct nvefs_scsi_mode_ask *ask, uint8_t buf[NVEFS_MODE_BYTES])
{
	static const uint8_t pages[] = {NVEFS_MODE_CACHING, NVEFS_MODE_CONTROL, NVEFS_MODE_POWER};
	uint8_t specific = (uint8_t)((m->write_protected ? 0x80 : 0) | (m->dpofua ? 0x10 : 0));
	uint32_t pos = ask->ten ? 8 : 4, bd_len = 0;
	bool llbaa = ask->ten && ask->llbaa;

	memset(buf, 0, NVEFS_MODE_BYTES);
	if (!ask->dbd)
		bd_len = block_descriptor_put(m, llbaa, buf + pos);
	pos += bd_len;
	for (size_t i = 0; i < sizeof(pages); i++)
		if (ask->page == pages[i] || ask->page == NVEFS_MODE_ALL)
			pos += nvefs_scsi_mode_page_build(m, ask->pc, pages[i], buf + pos);
	if (ask->ten) {
		be16_store(buf, (uint16_t)(pos - 2));
		buf[3] = specific;
		buf[4] = llbaa && bd_len ? 0x01 : 0;
		be16_store(buf + 6, (uint16_t)bd_len);
	} else {
		buf[0] = (uint8_t)(pos - 1);
		buf[2] = specific;
		buf[3] = (uint8_t)bd_len;
	}
	return pos;
}

static void block_descriptor_get(const uint8_t *p, size_t len, bool llbaa,
				 struct nvefs_scsi_mode *m)
{
	if (llbaa && len >= 16) {
		m->nlbas = be64_load(p);
		m->lba_bytes = be32_load(p + 12);
	} else if (!llbaa && len >= 8) {
		m->nlbas = be32_load(p);
		m->lba_bytes = be24_load(p + 5);
	}
}

static void page_get(const uint8_t *p, size_t len, struct nvefs_scsi_mode *m)
{
	if (p[0] & 0x40) /* sub-page format: none of ours */
		return;
	if ((p[0] & 0x3f) == NVEFS_MODE_CACHING && len >= 3) {
		m->has_caching = true;
		m->write_cache = p[2] & 0x04;
	} else if ((p[0] & 0x3f) == NVEFS_MODE_CONTROL && len >= 3) {
		m->has_control = true;
		m->descriptor_sense = p[2] & 0x04;
	} else if ((p[0] & 0x3f) == NVEFS_MODE_POWER) {
		m->has_power = true;
	}
}

int nvefs_scsi_mode_parse(const uint8_t *buf, size_t len, bool ten, struct nvefs_scsi_mode *ret)
{
	size_t pos = ten ? 8 : 4, said, bd_len;
	uint8_t specific;

	if (len < pos)
		return -EUCLEAN;
	said = ten ? 2u + be16_load(buf) : 1u + buf[0];
	bd_len = ten ? be16_load(buf + 6) : buf[3];
	if (said < len)
		len = said;
	if (len < pos || bd_len > len - pos)
		return -EUCLEAN;
	memset(ret, 0, sizeof(*ret));
	specific = ten ? buf[3] : buf[2];
	ret->write_protected = specific & 0x80;
	ret->dpofua = specific & 0x10;
	block_descriptor_get(buf + pos, bd_len, ten && (buf[4] & 1), ret);
	pos += bd_len;
	while (len - pos >= 2) {
		size_t left = len - pos, page_len = 2u + buf[pos + 1];

		if (buf[pos] & 0x40)
			page_len = left >= 4 ? 4u + be16_load(buf + pos + 2) : left + 1;
		if (page_len > left)
			return 0; /* cut by the allocation length */
		page_get(buf + pos, page_len, ret);
		pos += page_len;
	}
	return 0;
}
