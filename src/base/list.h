/* SPDX-License-Identifier: MIT */
/* Intrusive doubly linked list. The owner of the list provides the locking. */
#ifndef NVEFS_BASE_LIST_H
#define NVEFS_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct nvefs_list {
	struct nvefs_list *prev, *next;
};

#define nvefs_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void nvefs_list_init(struct nvefs_list *l)
{
	l->prev = l->next = l;
}
static inline bool nvefs_list_empty(const struct nvefs_list *l)
{
	return l->next == l;
}
/* Add `n` at the end of list `l`. */
static inline void nvefs_list_push(struct nvefs_list *l, struct nvefs_list *n)
{
	n->prev = l->prev;
	n->next = l;
	l->prev->next = n;
	l->prev = n;
}
/* Add `n` at the front of list `l`. */
static inline void nvefs_list_push_front(struct nvefs_list *l, struct nvefs_list *n)
{
	nvefs_list_push(l->next, n);
}
/* Take `n` out of its list; harmless when it is in none but was initialised. */
static inline void nvefs_list_del(struct nvefs_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	nvefs_list_init(n);
}
/* The first entry, taken out, or NULL. */
static inline struct nvefs_list *nvefs_list_pop(struct nvefs_list *l)
{
	struct nvefs_list *n = l->next;

	if (n == l)
		return NULL;
	nvefs_list_del(n);
	return n;
}
/* Move all entries of `from` to the end of `to`. */
static inline void nvefs_list_splice(struct nvefs_list *to, struct nvefs_list *from)
{
	if (nvefs_list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	nvefs_list_init(from);
}

#define nvefs_list_for_each(pos, l) for (pos = (l)->next; pos != (l); pos = pos->next)
#define nvefs_list_for_each_safe(pos, tmp, l)                                                      \
	for (pos = (l)->next, tmp = pos->next; pos != (l); pos = tmp, tmp = pos->next)

#endif
