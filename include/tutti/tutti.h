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

/* Before nn.h: g++ -Wshadow minds a function behind a struct of its name. */
#include <tutti/group.h>

#include <tutti/autograd.h>
#include <tutti/averaged.h>
#include <tutti/bench.h>
#include <tutti/checkpoint.h>
#include <tutti/checkpoint_files.h>
#include <tutti/collate.h>
#include <tutti/collectives.h>
#include <tutti/context.h>
#include <tutti/data.h>
#include <tutti/data_files.h>
#include <tutti/data_parallel.h>
#include <tutti/dataloader.h>
#include <tutti/ddp.h>
#include <tutti/devices.h>
#include <tutti/diagnose.h>
#include <tutti/dtype.h>
#include <tutti/launch.h>
#include <tutti/messages.h>
#include <tutti/metrics.h>
#include <tutti/modes.h>
#include <tutti/nn.h>
#include <tutti/nn_functions.h>
#include <tutti/nn_layers.h>
#include <tutti/nn_transformer.h>
#include <tutti/nn_vocabulary.h>
#include <tutti/objects.h>
#include <tutti/offload.h>
#include <tutti/op.h>
#include <tutti/op_activation.h>
#include <tutti/op_attention.h>
#include <tutti/op_conv.h>
#include <tutti/op_feature.h>
#include <tutti/op_fractional.h>
#include <tutti/op_index.h>
#include <tutti/op_likelihood.h>
#include <tutti/op_loss.h>
#include <tutti/op_margin_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_pad.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/op_vocabulary.h>
#include <tutti/op_volume.h>
#include <tutti/optim.h>
#include <tutti/options.h>
#include <tutti/own_optimizer.h>
#include <tutti/pictures.h>
#include <tutti/pipeline.h>
#include <tutti/pipeline_measure.h>
#include <tutti/pipeline_partition.h>
#include <tutti/pipeline_run.h>
#include <tutti/placement.h>
#include <tutti/prepared.h>
#include <tutti/profile.h>
#include <tutti/progress.h>
#include <tutti/safetensors.h>
#include <tutti/sharded.h>
#include <tutti/sharded_plan.h>
#include <tutti/status.h>
#include <tutti/store.h>
#include <tutti/tensor.h>
#include <tutti/tensor_parallel.h>
#include <tutti/transforms.h>

#endif
