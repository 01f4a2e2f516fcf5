/** The animated picture of layers that stream between host memory and the GPU. */
import { useId } from "react";
import "./stream-picture.css";

const ROW = 27;
const ROWS = 8;

/** Host memory: every layer with its weights, its master copy and moments, and space for its gradient. */
function HostStack({ width }: { width: number }) {
  const inner = width - 44;
  const weights = inner * 0.22;
  const gradient = inner * 0.13;
  const state = inner - weights - gradient - 12;
  return (
    <g>
      <rect width={width} height={320} rx={16} fill="var(--color-card)" stroke="var(--color-text)" strokeOpacity={0.12} />
      <text x={22} y={36} className="fill-white text-[15px] font-[620]">
        Host memory
      </text>
      <text x={22} y={58} className="fill-dim text-[12.5px]">
        all layers, in full precision
      </text>
      <g transform="translate(22 80)">
        {Array.from({ length: ROWS }, (_, row) => (
          <g key={row} transform={`translate(0 ${row * ROW})`}>
            <rect width={weights} height={19} rx={4} fill="var(--color-violet)" />
            <rect x={weights + 6} width={state} height={19} rx={4} fill="var(--color-primary-mid)" />
            <rect x={inner - gradient} width={gradient} height={19} rx={4} fill="var(--color-teal-deep)" />
          </g>
        ))}
        <g className="stream-row">
          <rect x={-6} y={-4} width={inner + 12} height={ROW} rx={7} fill="var(--color-violet-soft)" fillOpacity={0.14} stroke="var(--color-violet-soft)" strokeWidth={1.5} />
        </g>
      </g>
    </g>
  );
}

type LaneProps = { length: number; colour: string; back?: boolean; fade: string };

/** What travels between memory and GPU. The slabs fade at both ends, where they join what is drawn there. */
function Lane({ length, colour, back, fade }: LaneProps) {
  const SPACING = 84;
  const count = Math.ceil(length / SPACING) + 1;
  return (
    <g>
      <line x1={0} x2={length} y1={-15} y2={-15} stroke="var(--color-text)" strokeOpacity={0.1} />
      <line x1={0} x2={length} y1={15} y2={15} stroke="var(--color-text)" strokeOpacity={0.1} />
      <g mask={`url(#${fade})`}>
        {Array.from({ length: count }, (_, slab) => (
          <rect
            key={slab}
            className={back ? "stream-slab-back" : "stream-slab"}
            x={(slab - 1) * SPACING + 16}
            y={-8}
            width={back ? 34 : 52}
            height={16}
            rx={4}
            fill={colour}
          />
        ))}
      </g>
      <path
        d={back ? "M10 -5 L3 0 L10 5" : `M${length - 10} -5 L${length - 3} 0 L${length - 10} 5`}
        fill="none"
        stroke={colour}
        strokeWidth={2}
        strokeLinecap="round"
        strokeLinejoin="round"
      />
    </g>
  );
}

const PINS = [0.2, 0.35, 0.5, 0.65, 0.8];
const PETALS = [0, 90, 180, 270];

/** The GPU: four buffers, drawn as petals. One fills with a layer's weights, works, and gives its gradient back. */
function Gpu({ width, glow }: { width: number; glow: string }) {
  const centre = width / 2;
  return (
    <g>
      {PINS.map((at) => (
        <g key={at} fill="var(--color-text)" fillOpacity={0.16}>
          <rect x={width * at - 5} y={-9} width={10} height={9} rx={2} />
          <rect x={width * at - 5} y={320} width={10} height={9} rx={2} />
        </g>
      ))}
      <rect width={width} height={320} rx={16} fill="var(--color-rail)" stroke="var(--color-violet-soft)" strokeOpacity={0.45} />
      <text x={22} y={36} className="fill-white text-[15px] font-[620]">
        GPU
      </text>
      <text x={22} y={58} className="fill-dim text-[12.5px]">
        a few layers at a time
      </text>
      <circle className="stream-core" cx={centre} cy={188} r={120} fill={`url(#${glow})`} />
      <g transform={`translate(${centre - 105.6} 82.4) scale(8.8)`} strokeWidth={0.32}>
        {PETALS.map((turn, index) => (
          <ellipse
            key={turn}
            className="stream-petal"
            style={{ animationDelay: `${-1.8 * (3 - index)}s` }}
            cx={12}
            cy={6.6}
            rx={3.1}
            ry={4.6}
            transform={`rotate(${turn} 12 12)`}
            stroke={turn % 180 === 0 ? "var(--color-violet-soft)" : "var(--color-teal-soft)"}
            fill={turn % 180 === 0 ? "var(--color-violet-bright)" : "var(--color-teal-soft)"}
            fillOpacity={[0.9, 0.6, 0.3, 0.12][index]}
          />
        ))}
      </g>
    </g>
  );
}

const DESCRIPTION =
  "Host memory holds all layers. Weights are copied to the GPU a few layers at a time. Gradients are copied back to host memory.";

/** The idea in one picture. It is drawn twice, side by side for wide screens and stacked for narrow ones. */
export function StreamPicture() {
  return (
    <>
      <Wide />
      <Tall />
    </>
  );
}

function Wide() {
  const id = useId();
  return (
    <svg role="img" aria-label={DESCRIPTION} viewBox="-2 -14 1064 352" className="hidden w-full md:block">
      <Shades id={id} length={360} />
      <HostStack width={350} />
      <g transform="translate(350 0)">
        <text x={180} y={92} textAnchor="middle" className="fill-violet-soft text-[14px] font-[560]">
          weights
        </text>
        <g transform="translate(0 124)">
          <Lane length={360} colour="var(--color-violet-soft)" fade={`${id}-fade`} />
        </g>
        <g transform="translate(0 204)">
          <Lane length={360} colour="var(--color-teal-soft)" fade={`${id}-fade`} back />
        </g>
        <text x={180} y={246} textAnchor="middle" className="fill-teal-pale text-[14px] font-[560]">
          gradients
        </text>
      </g>
      <g transform="translate(710 0)">
        <Gpu width={350} glow={`${id}-glow`} />
      </g>
    </svg>
  );
}

function Tall() {
  const id = useId();
  return (
    <svg role="img" aria-label={DESCRIPTION} viewBox="-2 -2 344 816" className="mx-auto w-full max-w-[400px] md:hidden">
      <Shades id={id} length={150} />
      <HostStack width={340} />
      <g transform="translate(120 320) rotate(90)">
        <Lane length={150} colour="var(--color-violet-soft)" fade={`${id}-fade`} />
      </g>
      <text x={94} y={400} textAnchor="end" className="fill-violet-soft text-[15px] font-[560]">
        weights
      </text>
      <g transform="translate(220 320) rotate(90)">
        <Lane length={150} colour="var(--color-teal-soft)" fade={`${id}-fade`} back />
      </g>
      <text x={246} y={400} className="fill-teal-pale text-[15px] font-[560]">
        gradients
      </text>
      <g transform="translate(0 480)">
        <Gpu width={340} glow={`${id}-glow`} />
      </g>
    </svg>
  );
}

function Shades({ id, length }: { id: string; length: number }) {
  return (
    <defs>
      <linearGradient id={`${id}-ends`}>
        <stop offset="0" stopColor="white" stopOpacity={0} />
        <stop offset="0.14" stopColor="white" />
        <stop offset="0.86" stopColor="white" />
        <stop offset="1" stopColor="white" stopOpacity={0} />
      </linearGradient>
      <mask id={`${id}-fade`} maskUnits="userSpaceOnUse" x={0} y={-20} width={length} height={40}>
        <rect x={0} y={-20} width={length} height={40} fill={`url(#${id}-ends)`} />
      </mask>
      <radialGradient id={`${id}-glow`}>
        <stop offset="0" stopColor="var(--color-violet)" stopOpacity={0.42} />
        <stop offset="1" stopColor="var(--color-violet)" stopOpacity={0} />
      </radialGradient>
    </defs>
  );
}
