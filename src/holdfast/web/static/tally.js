// How much each tab of a task holds, counted from its rows and steps.

/** How many messages there are. */
export const counted = (rows) => rows.reduce((sum, one) => sum + (one[2] === "message_added" ? 1 : 0), 0);

/** Steps that failed, or failed on the way. */
export const failing = (steps) => steps.filter((one) => one.bars.some(([kind]) => kind === "failed") || one.status === "failed");
