// Count, sum and mean of a number in each group and window.

import { aggregator as made } from './levada/levada.js';

export const { module, aggregator } = made({
  fields: ['value'],
  // An accumulator is any JSON, up to 64 KiB.
  zero: () => ({ count: 0, sum: 0 }),
  add(totals, { value }) {
    const amount = value?.amount;
    return typeof amount === 'number' ? { count: totals.count + 1, sum: totals.sum + amount } : totals;
  },
  value: ({ count, sum }) => (count > 0 ? { count, sum, mean: sum / count } : undefined),
  // Session windows need this: they grow together.
  merge: (totals, later) => ({ count: totals.count + later.count, sum: totals.sum + later.sum }),
});
