/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "base/thread.h"

#define BAR_CELLS 40u
#define BAR_INTERVAL_NS 100000000ull

static volatile sig_atomic_t cancelled;

void nvefs_report_cancel(void)
{
	cancelled = 1;
}

bool nvefs_report_is_cancelled(void)
{
	return cancelled;
}

void nvefs_report_init(struct nvefs_report *r)
{
	if (!r->json)
		return;
	r->list = json_object_new_array();
	r->paths = json_object_new_object();
}

static void clear_bar(struct nvefs_report *r)
{
	if (r->bar_shown)
		fputs("\r\033[K", stdout);
	r->bar_shown = false;
}

/* Number of the problems with this code so far, this one included. */
static uint64_t count(struct nvefs_report *r, uint32_t code)
{
	uint32_t i = 0;

	while (i < NVEFS_REPORT_CODES - 1 && r->codes[i] && r->codes[i] != code)
		i++;
	r->codes[i] = code;
	return ++r->counts[i];
}

static void put_number(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

static void put_text(struct json_object *o, const char *key, const char *s)
{
	json_object_object_add(o, key, json_object_new_string(s));
}

static void add_json(struct nvefs_report *r, const struct nvefs_problem *p, const char *code, const char *text)
{
	const struct nvefs_problem_info *info = nvefs_problem_info(p->code);
	struct json_object *o = json_object_new_object();

	put_text(o, "code", code);
	put_text(o, "severity", nvefs_severity_text(info->severity));
	json_object_object_add(o, "safe_to_fix", json_object_new_boolean(info->safe));
	put_text(o, "action", p->mend ? "mended" : "left");
	put_text(o, "message", text);
	if (p->ino)
		put_number(o, "inode", p->ino);
	if (p->pblk)
		put_number(o, "pblk", p->pblk);
	json_object_array_add(r->list, o);
}

void nvefs_report_problem(void *arg, const struct nvefs_problem *p)
{
	struct nvefs_report *r = arg;
	char text[1024], code[16];

	bool asked = r->asked.code == p->code && r->asked.ino == p->ino && r->asked.pblk == p->pblk;

	r->asked.code = 0;
	if (count(r, p->code) > NVEFS_REPORT_PER_CODE || asked)
		return;
	nvefs_problem_text(p, text, sizeof(text));
	snprintf(code, sizeof(code), "NV%04x", p->code);
	if (r->json) {
		add_json(r, p, code, text);
		return;
	}
	clear_bar(r);
	printf("%s: %s: %s: %s%s\n", r->target, code, nvefs_severity_text(nvefs_problem_info(p->code)->severity), text,
	       p->mend ? ": mended" : "");
}

int nvefs_report_ask(void *arg, const struct nvefs_problem *p, enum nvefs_mender mender)
{
	struct nvefs_report *r = arg;
	bool asked;
	int answer;

	clear_bar(r);
	answer = nvefs_answers_get(&r->answers, r->target, p, mender, &asked);
	r->asked = asked ? *p : (struct nvefs_problem){0};
	return answer;
}

void nvefs_report_name(void *arg, uint64_t ino, const char *path)
{
	struct nvefs_report *r = arg;
	char key[24];

	if (r->json) {
		snprintf(key, sizeof(key), "%llu", (unsigned long long)ino);
		put_text(r->paths, key, path);
		return;
	}
	clear_bar(r);
	printf("%s: inode %llu is ", r->target, (unsigned long long)ino);
	for (const unsigned char *s = (const unsigned char *)path; *s; s++)
		printf(*s < ' ' || *s == 127 || *s == '\\' ? "\\%03o" : "%c", *s);
	putchar('\n');
}

static void draw_bar(struct nvefs_report *r, const char *pass, uint32_t pass_no, uint32_t npasses, double part)
{
	double all = (pass_no + part) / npasses;
	char cells[BAR_CELLS + 1];

	for (uint32_t i = 0; i < BAR_CELLS; i++)
		cells[i] = i < all * BAR_CELLS ? '=' : ' ';
	cells[BAR_CELLS] = '\0';
	printf("\r%s: %-11s [%s] %3.0f%%", r->target, pass, cells, 100 * all);
	fflush(stdout);
	r->bar_shown = true;
}

int nvefs_report_progress(void *arg, const char *pass, uint32_t pass_no, uint32_t npasses, uint64_t done,
			  uint64_t total)
{
	struct nvefs_report *r = arg;
	uint64_t now;

	if (!r->bar && r->progress_fd <= 0)
		return cancelled;
	now = nvefs_now_ns();
	if (now - r->bar_ns < BAR_INTERVAL_NS)
		return cancelled;
	r->bar_ns = now;
	if (done > total)
		done = total;
	if (r->progress_fd > 0)
		dprintf(r->progress_fd, "%u %llu %llu %s\n", pass_no + 1, (unsigned long long)done,
			(unsigned long long)(total ? total : 1), r->target);
	else
		draw_bar(r, pass, pass_no, npasses, total ? (double)done / (double)total : 0);
	return cancelled;
}

static void print_more(const struct nvefs_report *r)
{
	for (uint32_t i = 0; i < NVEFS_REPORT_CODES && r->codes[i]; i++)
		if (r->counts[i] > NVEFS_REPORT_PER_CODE)
			printf("%s: NV%04x: %llu more like these\n", r->target, r->codes[i],
			       (unsigned long long)(r->counts[i] - NVEFS_REPORT_PER_CODE));
}

static void print_problems(const struct nvefs_report *r, const struct nvefs_check_result *res)
{
	unsigned long long mended = res->problems - res->left, left = res->left;

	printf("%s: %llu problems found, %llu mended, %llu left\n", r->target, (unsigned long long)res->problems,
	       mended, left);
	if (res->held)
		printf("%s: the tree is not whole: -p mends nothing there, -y does\n", r->target);
	else if (res->stopped)
		printf("%s: mending ended early: %s\n", r->target, strerror(-res->stopped));
	else if (left)
		printf("%s: -p mends what is safe, -y all that can be mended\n", r->target);
}

static void print_end(const struct nvefs_report *r, const struct nvefs_check_result *res)
{
	print_more(r);
	if (res->replayed_txns)
		printf("%s: journal: %llu transactions replayed\n", r->target,
		       (unsigned long long)res->replayed_txns);
	if (res->problems) {
		print_problems(r, res);
		if (res->left)
			return;
	}
	if (res->skipped) {
		printf("%s: clean as far as superblocks, journal and root tell (-f checks everything)\n", r->target);
		return;
	}
	printf("%s: clean: %llu files, %llu directories, %llu others; %llu of %llu blocks free\n", r->target,
	       (unsigned long long)res->files, (unsigned long long)res->dirs, (unsigned long long)res->others,
	       (unsigned long long)res->free_blks, (unsigned long long)res->nblks);
	if (res->data_checked_blks)
		printf("%s: %llu data blocks read, all as their checksums say\n", r->target,
		       (unsigned long long)res->data_checked_blks);
}

static struct json_object *counts_json(const struct nvefs_check_result *res)
{
	struct json_object *o = json_object_new_object();

	put_number(o, "blocks", res->nblks);
	put_number(o, "free_blocks", res->free_blks);
	put_number(o, "data_blocks", res->data_blks);
	put_number(o, "tree_blocks", res->meta_blks);
	put_number(o, "shared_blocks", res->shared_blks);
	put_number(o, "files", res->files);
	put_number(o, "directories", res->dirs);
	put_number(o, "others", res->others);
	put_number(o, "orphans", res->orphans);
	put_number(o, "replayed_transactions", res->replayed_txns);
	put_number(o, "data_blocks_read", res->data_checked_blks);
	return o;
}

static void print_json(struct nvefs_report *r, struct json_object *doc, int status)
{
	json_object_object_add(doc, "exit_status", json_object_new_int(status));
	puts(json_object_to_json_string_ext(doc, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(doc);
	r->list = NULL;
}

static const char *text_of(struct json_object *list, size_t i, const char *key)
{
	struct json_object *v;

	return json_object_object_get_ex(json_object_array_get_idx(list, i), key, &v) ? json_object_get_string(v) : "";
}

/* What was going to be mended when mending ended early is in the list a second time, as left. */
static void drop_unmended(struct json_object *list)
{
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		size_t k = i + 1, n = json_object_array_length(list);

		while (k < n && (strcmp(text_of(list, k, "message"), text_of(list, i, "message")) != 0 ||
				 strcmp(text_of(list, k, "action"), "left") != 0))
			k++;
		if (k < n && !strcmp(text_of(list, i, "action"), "mended"))
			json_object_array_del_idx(list, i--, 1);
	}
}

void nvefs_report_done(struct nvefs_report *r, const struct nvefs_check_result *res, int status)
{
	struct json_object *doc;
	char uuid[37];

	clear_bar(r);
	nvefs_answers_done(&r->answers);
	if (!r->json) {
		print_end(r, res);
		return;
	}
	doc = json_object_new_object();
	uuid_unparse(res->uuid, uuid);
	put_text(doc, "target", r->target);
	put_text(doc, "uuid", uuid);
	put_text(doc, "label", res->label);
	json_object_object_add(doc, "clean", json_object_new_boolean(!res->left));
	json_object_object_add(doc, "complete", json_object_new_boolean(!res->skipped));
	put_number(doc, "problems_found", res->problems);
	put_number(doc, "problems_mended", res->problems - res->left);
	put_number(doc, "problems_left", res->left);
	put_number(doc, "rounds_of_mending", res->rounds);
	if (res->stopped) {
		put_text(doc, "mending_ended_early", strerror(-res->stopped));
		drop_unmended(r->list);
	}
	json_object_object_add(doc, "problems", r->list);
	json_object_object_add(doc, "paths", r->paths);
	json_object_object_add(doc, "counts", counts_json(res));
	print_json(r, doc, status);
}

void nvefs_report_failed(struct nvefs_report *r, const char *text, int status)
{
	struct json_object *doc;

	clear_bar(r);
	nvefs_answers_done(&r->answers);
	fprintf(stderr, "fsck.nvefs: %s\n", text);
	if (!r->json)
		return;
	json_object_put(r->list);
	json_object_put(r->paths);
	doc = json_object_new_object();
	put_text(doc, "target", r->target);
	put_text(doc, "error", text);
	print_json(r, doc, status);
}
