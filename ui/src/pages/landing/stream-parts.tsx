/** The parts of the picture: memory, the two lanes, and the GPU. All in the units of the drawing. */

const ROW = 27;
export const ROWS = 8;

/** Host memory: every layer with its weights, its master copy and moments, and room for its gradient. */
export function HostStack({ width }: { width: number }) {
  const inner = width - 44;
  const weights = inner * 0.22;
  const gradient = inner * 0.13;
  const state = inner - weights - gradient - 12;
  return (
    <g>
      <rect width={width} height={320} rx={16} fill="#263040" stroke="#e5e7eb" strokeOpacity={0.12} />
      <text x={22} y={36} className="fill-white text-[15px] font-[620]">
        Host memory
      </text>
      <text x={22} y={58} className="fill-[#a3abb8] text-[12.5px]">
        every layer, at full precision
      </text>
      <g transform="translate(22 80)">
        {Array.from({ length: ROWS }, (_, row) => (
          <g key={row} transform={`translate(0 ${row * ROW})`}>
            <rect width={weights} height={19} rx={4} fill="#6d5bd0" />
            <rect x={weights + 6} width={state} height={19} rx={4} fill="#31498f" />
            <rect x={inner - gradient} width={gradient} height={19} rx={4} fill="#12707c" />
          </g>
        ))}
        <g className="stream-row">
          <rect x={-6} y={-4} width={inner + 12} height={ROW} rx={7} fill="#a98bfa" fillOpacity={0.14} stroke="#a98bfa" strokeWidth={1.5} />
        </g>
      </g>
    </g>
  );
}

type LaneProps = { length: number; colour: string; back?: boolean; fade: string };

/** What travels between memory and GPU. The slabs fade at both ends, where they join what is drawn there. */
export function Lane({ length, colour, back, fade }: LaneProps) {
  const SPACING = 84;
  const count = Math.ceil(length / SPACING) + 1;
  return (
    <g>
      <line x1={0} x2={length} y1={-15} y2={-15} stroke="#e5e7eb" strokeOpacity={0.1} />
      <line x1={0} x2={length} y1={15} y2={15} stroke="#e5e7eb" strokeOpacity={0.1} />
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
export function Gpu({ width, glow }: { width: number; glow: string }) {
  const centre = width / 2;
  return (
    <g>
      {PINS.map((at) => (
        <g key={at} fill="#e5e7eb" fillOpacity={0.16}>
          <rect x={width * at - 5} y={-9} width={10} height={9} rx={2} />
          <rect x={width * at - 5} y={320} width={10} height={9} rx={2} />
        </g>
      ))}
      <rect width={width} height={320} rx={16} fill="#1d2635" stroke="#a98bfa" strokeOpacity={0.45} />
      <text x={22} y={36} className="fill-white text-[15px] font-[620]">
        GPU
      </text>
      <text x={22} y={58} className="fill-[#a3abb8] text-[12.5px]">
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
            stroke={turn % 180 === 0 ? "#a98bfa" : "#33c2cf"}
            fill={turn % 180 === 0 ? "#8b5cf6" : "#33c2cf"}
            fillOpacity={[0.9, 0.6, 0.3, 0.12][index]}
          />
        ))}
      </g>
    </g>
  );
}
