/* What zeros in tutti_launch_options_t mean. */
#ifndef TT_LAUNCH_DEFAULTS_H
#define TT_LAUNCH_DEFAULTS_H

enum { TT_LAUNCH_GRACE_MS = 30000, TT_LAUNCH_JOIN_MS = 600000 };

#endif
