// Zoom and move along time, names under the pointer, and the arrows of what is under it. Times are nanoseconds.
"use strict";
(() => {
    const svg = document.querySelector("svg.timeline");
    const axis = svg.querySelector(".axis");
    const tip = document.getElementById("tip");
    const number = (element, name) => Number(element.getAttribute(name));
    const numbers = (element, name) => element.dataset[name].split(" ").map(Number);
    const [left, width, total] = numbers(svg, "plot");
    const bottom = number(svg, "height");
    const texts = new Map();
    for (const title of svg.querySelectorAll("title")) {
        texts.set(title.parentNode, title.textContent);
        title.remove();
    }
    const slices = Array.from(svg.querySelectorAll(".slice"), element => {
        const [begin, end] = numbers(element, "t");
        return { element, rank: Number(element.parentNode.dataset.rank), begin, end };
    });
    const arrows = Array.from(svg.querySelectorAll(".arrow"), element => {
        const [begin, end] = numbers(element, "t");
        const [from, to] = numbers(element, "ranks");
        return { element, from, to, begin, end, y1: number(element, "y1"), y2: number(element, "y2") };
    });
    let [from, to] = [0, total];
    let isAsked = false;

    const across = time => width * (time - from) / (to - from);
    const set = (element, values) => {
        for (const name in values) element.setAttribute(name, values[name]);
    };
    const shows = one => {
        const is = one.begin <= to && one.end >= from;
        one.element.style.display = is ? "" : "none";
        return is;
    };

    const label = (time, step) => {
        const [unit, scale] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, scale]) => to >= scale) || ["ns", 1];
        const digits = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
        return `${(time / scale).toFixed(digits)} ${unit}`;
    };

    const draw = () => {
        isAsked = false;
        for (const slice of slices.filter(shows)) {
            // What is far outside of the picture is cut, since the coordinates of browsers are not precise there.
            const begin = Math.max(across(slice.begin), -width);
            set(slice.element, { x: begin, width: Math.max(Math.min(across(slice.end), 2 * width) - begin, 0.6) });
        }
        for (const arrow of arrows.filter(shows)) {
            const [x1, x2] = [across(arrow.begin), across(arrow.end)];
            const y = x => arrow.y1 + (arrow.y2 - arrow.y1) * (x2 > x1 ? (x - x1) / (x2 - x1) : 0);
            const [a, b] = [Math.max(x1, -width), Math.min(x2, 2 * width)];
            set(arrow.element, { x1: a, y1: y(a), x2: b, y2: x2 > x1 ? y(b) : arrow.y2 });
        }
        const least = 110 * (to - from) / width;
        let step = 10 ** Math.floor(Math.log10(least));
        step *= [1, 2, 5, 10].find(factor => factor * step >= least);
        let marks = "";
        for (let n = Math.ceil(from / step); n * step <= to; n++) {
            const x = left + across(n * step);
            marks += `<line x1="${x}" x2="${x}" y1="0" y2="${bottom - 16}" stroke="#ccc"/>`
                + `<text x="${x}" y="${bottom - 4}">${label(n * step, step)}</text>`;
        }
        axis.innerHTML = marks;
    };
    const view = (begin, span) => {
        span = Math.min(Math.max(span, 10), total);
        from = Math.min(Math.max(begin, 0), total - span);
        to = from + span;
        tip.hidden = true;
        if (!isAsked) requestAnimationFrame(draw);
        isAsked = true;
    };
    // Zooms by a factor round a part of the width.
    const zoom = (factor, part) => {
        const span = Math.min(Math.max((to - from) * factor, 10), total);
        view(from + part * (to - from - span), span);
    };
    const move = part => view(from + part * (to - from), to - from);

    // The part of the picture's width at which an event is.
    const part = event => {
        const box = svg.getBoundingClientRect();
        return ((event.clientX - box.left) * number(svg, "width") / box.width - left) / width;
    };
    svg.addEventListener("wheel", event => {
        const at = part(event);
        if (at < 0) return;
        event.preventDefault();
        if (event.deltaX) move(event.deltaX / 1000);
        if (event.deltaY) zoom(1.002 ** (event.deltaMode ? 40 * event.deltaY : event.deltaY), at);
    }, { passive: false });
    let held = null;
    svg.addEventListener("pointerdown", event => {
        if (event.button === 0) held = part(event);
    });
    addEventListener("pointerup", () => { held = null; });
    addEventListener("pointercancel", () => { held = null; });
    addEventListener("pointermove", event => {
        if (held === null) return;
        move(held - part(event));
        held = part(event);
    });

    const point = event => {
        for (const element of svg.querySelectorAll(".on")) element.classList.remove("on");
        const text = texts.get(event.target);
        tip.hidden = text === undefined;
        if (tip.hidden) return;
        tip.textContent = text;
        tip.style.left = `${Math.max(0, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 12))}px`;
        tip.style.top = `${event.clientY + 14}px`;
        event.target.classList.add("on");
        const slice = slices.find(slice => slice.element === event.target);
        if (!slice) return;
        const isInside = (rank, time) => rank === slice.rank && time >= slice.begin && time <= slice.end;
        for (const arrow of arrows) {
            if (isInside(arrow.from, arrow.begin) || isInside(arrow.to, arrow.end)) arrow.element.classList.add("on");
        }
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerleave", point);

    const actions = {
        in: () => zoom(0.5, 0.5), out: () => zoom(2, 0.5),
        left: () => move(-0.25), right: () => move(0.25), whole: () => view(0, total),
    };
    const controls = document.getElementById("controls");
    for (const button of controls.querySelectorAll("button")) button.addEventListener("click", actions[button.name]);
    controls.hidden = false;
    draw();
})();
