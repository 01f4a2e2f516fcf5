import type uPlot from "uplot";
import type { ChartMark } from "@/curves/chart-marks";
import { FONT, paint } from "./plot-style";

const LINE = 15;

/** Dashed lines across the chart; a large one also has their words at the top, where there is room for them. */
export function drawMarks(plot: uPlot, marks: readonly ChartMark[], ratio: number, labelled: boolean) {
  const { left, top, width, height } = plot.bbox;
  const { ctx } = plot;
  ctx.save();
  ctx.strokeStyle = paint.mark;
  ctx.fillStyle = paint.mark;
  ctx.font = FONT.replace("11px", `${11 * ratio}px`);
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  ctx.lineWidth = ratio;
  // Where each line of words is free again; marks that lie close together take turns.
  const free = [left, left, left];
  for (const mark of marks) {
    const x = plot.valToPos(mark.step, "x", true);
    if (x < left || x > left + width) continue;
    ctx.globalAlpha = 0.7;
    ctx.setLineDash([3 * ratio, 4 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    if (!labelled) continue;
    const length = ctx.measureText(mark.label).width;
    const start = x + 6 * ratio + length > left + width ? x - 6 * ratio - length : x + 6 * ratio;
    const line = free.findIndex((from) => start >= from);
    if (line === -1 || length > width * 0.6) continue;
    ctx.globalAlpha = 1;
    ctx.fillText(mark.label, start, top + (4 + line * LINE) * ratio);
    free[line] = start + length + 8 * ratio;
  }
  ctx.restore();
}
