/* SPDX-License-Identifier: MIT */
#include "device/write_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

/*
 * Every version is in two chains: `older` links those of one LBA from newest
 * to oldest, behind the bucket's `next_lba`; `age` links all, oldest first.
 */
struct version {
	struct nvefs_list age;
	struct version *older, *next_lba;
	uint64_t lba;
	uint32_t count; /* versions of this LBA from here on */
	uint8_t data[];
};

struct nvefs_write_cache {
	uint32_t lba_bytes, max_lbas, nversions, nbuckets;
	struct nvefs_list ages;
	struct version **buckets;
};

struct nvefs_write_cache *nvefs_write_cache_new(uint32_t lba_bytes, uint32_t max_lbas)
{
	struct nvefs_write_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->lba_bytes = lba_bytes;
	c->max_lbas = max_lbas;
	c->nbuckets = 4096;
	nvefs_list_init(&c->ages);
	c->buckets = calloc(c->nbuckets, sizeof(*c->buckets));
	if (c->buckets)
		return c;
	free(c);
	return NULL;
}

void nvefs_write_cache_free(struct nvefs_write_cache *c)
{
	if (!c)
		return;
	nvefs_write_cache_flush(c);
	free(c->buckets);
	free(c);
}

/* splitmix64: a well-mixed value for each input. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static struct version **find(struct nvefs_write_cache *c, uint64_t lba)
{
	struct version **at = &c->buckets[mix(lba) % c->nbuckets];

	while (*at && (*at)->lba != lba)
		at = &(*at)->next_lba;
	return at;
}

static void drop_chain(struct nvefs_write_cache *c, struct version *v)
{
	while (v) {
		struct version *older = v->older;

		nvefs_list_del(&v->age);
		free(v);
		c->nversions--;
		v = older;
	}
}

void nvefs_write_cache_settle(struct nvefs_write_cache *c, uint64_t lba)
{
	struct version **at = find(c, lba), *v = *at;

	if (!v)
		return;
	*at = v->next_lba;
	drop_chain(c, v);
}

/* The oldest version of all is the tail of its LBA's chain. */
static void drop_oldest(struct nvefs_write_cache *c)
{
	struct version *oldest = nvefs_container_of(c->ages.next, struct version, age);
	struct version **at = find(c, oldest->lba), *v = *at;

	if (v == oldest) {
		*at = v->next_lba;
	} else {
		for (; v->older != oldest; v = v->older)
			v->count--;
		v->count--;
		v->older = NULL;
	}
	nvefs_list_del(&oldest->age);
	free(oldest);
	c->nversions--;
}

int nvefs_write_cache_note(struct nvefs_write_cache *c, uint64_t lba, const void *old)
{
	struct version **at, *v;

	if (c->nversions == c->max_lbas)
		drop_oldest(c);
	v = malloc(sizeof(*v) + c->lba_bytes);
	if (!v)
		return -ENOMEM;
	memcpy(v->data, old, c->lba_bytes);
	v->lba = lba;
	at = find(c, lba);
	v->older = *at;
	v->count = v->older ? v->older->count + 1 : 1;
	v->next_lba = v->older ? v->older->next_lba : NULL;
	*at = v;
	nvefs_list_push(&c->ages, &v->age);
	c->nversions++;
	return 0;
}

void nvefs_write_cache_flush(struct nvefs_write_cache *c)
{
	for (uint32_t b = 0; b < c->nbuckets && c->nversions; b++) {
		while (c->buckets[b]) {
			struct version *v = c->buckets[b];

			c->buckets[b] = v->next_lba;
			drop_chain(c, v);
		}
	}
}

uint64_t nvefs_write_cache_cut(struct nvefs_write_cache *c, uint64_t seed, uint8_t *medium)
{
	uint64_t lost = 0;

	for (uint32_t b = 0; b < c->nbuckets; b++) {
		for (struct version *v = c->buckets[b]; v; v = v->next_lba) {
			uint32_t lose = (uint32_t)(mix(seed ^ mix(v->lba)) % (v->count + 1));
			struct version *back = v;

			if (!lose)
				continue;
			for (uint32_t i = 1; i < lose; i++)
				back = back->older;
			memcpy(medium + v->lba * c->lba_bytes, back->data, c->lba_bytes);
			lost++;
		}
	}
	nvefs_write_cache_flush(c);
	return lost;
}
