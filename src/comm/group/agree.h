/* Do all ranks of a group go on? For what ranks prepare alone before they call each other. */
#ifndef TT_AGREE_H
#define TT_AGREE_H

#include <tutti/group.h>

/* Every rank says how it fared; `mine` has its text in tutti_last_error(). OK where all did well.
 * Otherwise every rank returns the failure of the lowest rank that has one, with "rank 2: " before
 * its text on the others. A group of one, or none, has that of its own. Where the agreement itself
 * fails, the group is given up: a rank with a failure returns that, others the agreement's. */
tutti_status_t tt_group_agree(tutti_group_t *group, tutti_status_t mine);

/* The same as a part of a public call, which was made at `site`. */
tutti_status_t tt_group_agree_at(tutti_group_t *group, tutti_status_t mine, const void *site);

/* The same, and whether any rank wants all to come here once more: *again, in and out. A failure
 * goes before it. For ranks that wait for something others do not see, in turns shorter than the
 * group's timeout. */
tutti_status_t tt_group_agree_again(tutti_group_t *group, tutti_status_t mine, bool *again);

/* What the first rank gives, into `first`, for each rank to compare its own with; then all agree on
 * how that went. Groups of one, or none: their own. */
tutti_status_t tt_group_hear_first(tutti_group_t *group, const void *mine, size_t bytes,
                                   void *first);

/* A call failed on this rank, perhaps on this one alone: gives the group up, so that nobody waits
 * in the call for this rank. The others' calls end with ABORTED, and the text of this failure
 * behind this rank's number. Returns the failure, with its text; nothing for a group of one, or
 * none. */
tutti_status_t tt_group_give_up(tutti_group_t *group, tutti_status_t status);

/* Whether ranks cannot agree any more, as far as is known: the group has failed, or a rank is gone.
 * Does not wait. */
bool tt_group_is_broken(tutti_group_t *group);

/* The same, and why: for one that computes for long before it waits for the others. */
tutti_status_t tt_group_check(tutti_group_t *group);

#endif
