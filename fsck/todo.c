/* SPDX-License-Identifier: MIT */
/* What a round leaves for mending. */
#include <errno.h>
#include <stdlib.h>

#include "mend.h"

int nvefs_numbers_add(struct nvefs_numbers *s, uint64_t number)
{
	if (s->n && s->tab[s->n - 1] == number)
		return 0;
	if (s->n == s->max) {
		size_t max = s->max ? s->max * 2 : 64;
		uint64_t *tab = reallocarray(s->tab, max, sizeof(*tab));

		if (!tab)
			return -ENOMEM;
		s->tab = tab;
		s->max = max;
	}
	s->tab[s->n++] = number;
	return 0;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

void nvefs_numbers_sort(struct nvefs_numbers *s)
{
	size_t n = 0;

	if (s->n)
		qsort(s->tab, s->n, sizeof(*s->tab), compare);
	for (size_t i = 0; i < s->n; i++)
		if (!n || s->tab[n - 1] != s->tab[i])
			s->tab[n++] = s->tab[i];
	s->n = n;
}

void nvefs_todo_done(struct nvefs_todo *t)
{
	free(t->sick.tab);
	free(t->lost.tab);
	free(t->loops.tab);
	free(t->orphans.tab);
	free(t->items.tab);
	free(t->copies);
	*t = (struct nvefs_todo){0};
}

static enum nvefs_mender mender_of(const struct nvefs_problem *p)
{
	if ((p->code == NVEFS_P_ITEM_KIND || p->code == NVEFS_P_ITEM_VALUE) && !p->ino)
		return p->kind == NVEFS_KIND_GROUP ? NVEFS_MEND_TREE : NVEFS_MEND_ITEM;
	return nvefs_problem_info(p->code)->mender;
}

static int note(struct nvefs_todo *t, const struct nvefs_problem *p, enum nvefs_mender mender)
{
	switch (mender) {
	case NVEFS_MEND_ITEM:
		return nvefs_numbers_add(&t->items, (uint64_t)p->kind << NVEFS_OFFSET_BITS | p->lblk);
	case NVEFS_MEND_ORPHAN:
		return nvefs_numbers_add(&t->orphans, p->ino);
	case NVEFS_MEND_LOOP:
		return nvefs_numbers_add(&t->loops, p->ino);
	case NVEFS_MEND_LOST:
		return nvefs_numbers_add(&t->lost, p->ino);
	case NVEFS_MEND_INODE:
		/* The directory is right where it is found: it is the other one that says something else. */
		return nvefs_numbers_add(&t->sick, p->code == NVEFS_P_DIR_PARENT ? p->found : p->ino);
	default:
		return 0;
	}
}

static bool allowed(struct nvefs_check_ctx *c, const struct nvefs_problem *p, enum nvefs_mender mender)
{
	int answer = c->ask_err ? 0 : c->opts->ask(c->opts->arg, p, mender);

	if (answer < 0)
		c->ask_err = answer;
	c->tree_refused |= answer <= 0 && mender == NVEFS_MEND_TREE;
	return answer > 0;
}

/*
 * -p stops short of a tree that is not whole: what is missing would look like
 * leaks. Superblock slots and second copies do not depend on it.
 */
bool nvefs_todo_add(struct nvefs_check_ctx *c, const struct nvefs_problem *p)
{
	enum nvefs_mender mender = mender_of(p);
	bool safe = nvefs_problem_info(p->code)->safe && (!c->incomplete || 1u << mender & NVEFS_MENDERS_ALONE);

	if (mender == NVEFS_MEND_NONE || c->past->repair == NVEFS_REPAIR_NONE)
		return false;
	if (c->past->repair == NVEFS_REPAIR_SAFE && !safe)
		return false;
	if (c->opts->ask && !allowed(c, p, mender))
		return false;
	c->todo.menders |= 1u << mender;
	c->todo.nomem |= note(&c->todo, p, mender) != 0;
	return true;
}
