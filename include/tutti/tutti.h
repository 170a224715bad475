/**
 * @file tutti.h
 * Everything. Each chapter can be included by itself.
 *
 * Example:
 *
 *     printf("tutti %s\n", tutti_version());
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <tutti/autograd.h>
#include <tutti/averaging.h>
#include <tutti/bench.h>
#include <tutti/bytes.h>
#include <tutti/collectives.h>
#include <tutti/context.h>
#include <tutti/data.h>
#include <tutti/data_parallel.h>
#include <tutti/dataloader.h>
#include <tutti/ddp.h>
#include <tutti/ddp_hooks.h>
#include <tutti/dtype.h>
#include <tutti/diagnose.h>
#include <tutti/elastic.h>
#include <tutti/explain.h>
#include <tutti/group.h>
#include <tutti/info.h>
#include <tutti/init.h>
#include <tutti/leaves.h>
#include <tutti/mesh.h>
#include <tutti/messages.h>
#include <tutti/nn.h>
#include <tutti/nn_layers.h>
#include <tutti/objects.h>
#include <tutti/op.h>
#include <tutti/op_conv.h>
#include <tutti/op_linear.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_norm.h>
#include <tutti/op_pool.h>
#include <tutti/op_random.h>
#include <tutti/op_reduce.h>
#include <tutti/op_rnn.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/optim_kinds.h>
#include <tutti/own_optimizer.h>
#include <tutti/options.h>
#include <tutti/pool_layers.h>
#include <tutti/prepared.h>
#include <tutti/recompute.h>
#include <tutti/reduction.h>
#include <tutti/rnn_layers.h>
#include <tutti/safetensors.h>
#include <tutti/scaler.h>
#include <tutti/snapshot.h>
#include <tutti/spawn.h>
#include <tutti/status.h>
#include <tutti/store.h>
#include <tutti/sync_batch_norm.h>
#include <tutti/tensor.h>
#include <tutti/trace.h>
#include <tutti/work.h>

#endif
