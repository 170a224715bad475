/* How users number the ranks of a group, such as one of a mesh, in texts. */
#ifndef TT_ROOT_RANK_H
#define TT_ROOT_RANK_H

#include <tutti/group.h>

/* The number in the world of a rank of the group. */
int tt_group_root_rank(const tutti_group_t *group, int rank);

#endif
