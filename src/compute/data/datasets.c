/* The list of kinds of data sets, as a table. */
#include <tutti/data_files.h>
#include <tutti/pictures.h>
#include <tutti/transforms.h>

#include "compute/data/dataset.h"

const tutti_dataset_ops_t *const tt_datasets[] = {
#define X(table) &table,
#include "compute/data/datasets.def"
#undef X
};

const size_t tt_dataset_count = sizeof tt_datasets / sizeof tt_datasets[0];
