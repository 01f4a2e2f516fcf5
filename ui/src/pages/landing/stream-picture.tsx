import { useId } from "react";
import { Gpu, HostStack, Lane } from "./stream-parts";
import "./stream-picture.css";

const DESCRIPTION =
  "Host memory holds every layer. Weights travel to the GPU a few layers at a time; gradients travel back to host memory.";

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
        <text x={180} y={92} textAnchor="middle" className="fill-[#c9b8fd] text-[14px] font-[560]">
          weights
        </text>
        <g transform="translate(0 124)">
          <Lane length={360} colour="#a98bfa" fade={`${id}-fade`} />
        </g>
        <g transform="translate(0 204)">
          <Lane length={360} colour="#33c2cf" fade={`${id}-fade`} back />
        </g>
        <text x={180} y={246} textAnchor="middle" className="fill-[#6fe0ea] text-[14px] font-[560]">
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
        <Lane length={150} colour="#a98bfa" fade={`${id}-fade`} />
      </g>
      <text x={94} y={400} textAnchor="end" className="fill-[#c9b8fd] text-[15px] font-[560]">
        weights
      </text>
      <g transform="translate(220 320) rotate(90)">
        <Lane length={150} colour="#33c2cf" fade={`${id}-fade`} back />
      </g>
      <text x={246} y={400} className="fill-[#6fe0ea] text-[15px] font-[560]">
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
        <stop offset="0" stopColor="#fff" stopOpacity={0} />
        <stop offset="0.14" stopColor="#fff" />
        <stop offset="0.86" stopColor="#fff" />
        <stop offset="1" stopColor="#fff" stopOpacity={0} />
      </linearGradient>
      <mask id={`${id}-fade`} maskUnits="userSpaceOnUse" x={0} y={-20} width={length} height={40}>
        <rect x={0} y={-20} width={length} height={40} fill={`url(#${id}-ends)`} />
      </mask>
      <radialGradient id={`${id}-glow`}>
        <stop offset="0" stopColor="#7c3aed" stopOpacity={0.42} />
        <stop offset="1" stopColor="#7c3aed" stopOpacity={0} />
      </radialGradient>
    </defs>
  );
}
