"""The script of `engine draw`'s page: folding, search, zoom, and what is known of a layer.

It only places and shows: all positions come with the data, for all blocks folded and for all open, and each block's
inside by itself. To open some it stretches the plane where they lie (`stretched`), so that nothing overlaps.
"""

SCRIPT = r"""
'use strict';
const D = JSON.parse(document.getElementById('data').textContent);
const NS = 'http://www.w3.org/2000/svg';
const sideways = D.dir === 'LR' || D.dir === 'RL', back = D.dir === 'BT' || D.dir === 'RL';
const byId = (id) => document.getElementById(id), svg = byId('net'), view = {k: 1, x: 0, y: 0}, open = new Set();
let scene, placed = {}, chosen = -1, size = [1, 1];

function el(name, attributes, parent) {
  const made = document.createElementNS(NS, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(made);
  return made;
}
function tag(name, text, parent, cls) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  if (cls) made.className = cls;
  if (parent) parent.appendChild(made);
  return made;
}

// -- positions --------------------------------------------------------------------------------------------------

// A map of coordinates that widens each [low, high] to `need`, and brings no two points nearer to each other.
function stretched(spans) {
  const ends = [...new Set(spans.flatMap((s) => [s.low, s.high]))].sort((a, b) => a - b), to = [];
  ends.forEach((end, i) => {
    let at = i ? to[i - 1] + end - ends[i - 1] : end;
    for (const s of spans) if (s.high === end) at = Math.max(at, to[ends.indexOf(s.low)] + s.need);
    to.push(at);
  });
  return (value) => {
    if (!ends.length || value <= ends[0]) return value;
    let i = 0;
    while (i + 1 < ends.length && value >= ends[i + 1]) i++;
    if (i + 1 === ends.length) return to[i] + value - ends[i];
    return to[i] + (value - ends[i]) * (to[i + 1] - to[i]) / (ends[i + 1] - ends[i]);
  };
}

// [across, along] of a point, and back.
const turn = (pair) => sideways ? [pair[1], pair[0]] : pair;

function arranged() {
  const plate = D.blocks.length && open.size === D.blocks.length ? D.full : D.plate, spans = [[], []];
  plate.nodes.forEach((node) => {
    if (node.block < 0 || !open.has(node.block)) return;
    const inside = D.insides[node.block];
    spans[0].push({low: node.r[0], high: node.r[0] + node.r[2], need: inside.w});
    spans[1].push({low: node.r[1], high: node.r[1] + node.r[3], need: inside.h});
  });
  const map = [stretched(spans[0]), stretched(spans[1])];
  const spots = plate.nodes.map((node) => {
    const opened = node.block >= 0 && open.has(node.block), inside = opened && D.insides[node.block];
    const extent = turn(opened ? [inside.w, inside.h] : [node.r[2], node.r[3]]);
    const old = turn([node.r[0], node.r[1]]), was = turn([node.r[2], node.r[3]]), maps = turn(map);
    const middle = opened ? (maps[0](old[0]) + maps[0](old[0] + was[0])) / 2 : maps[0](old[0] + was[0] / 2);
    const start = back ? maps[1](old[1] + was[1]) - extent[1] : maps[1](old[1]);
    const corner = turn([middle - extent[0] / 2, start]);
    return {node, opened, middle, x: corner[0], y: corner[1], start, end: start + extent[1],
      oldMiddle: old[0] + was[0] / 2, oldStart: old[1], oldEnd: old[1] + was[1]};
  });
  const lines = plate.lines.map(([wire, x, y, x2, y2, bend, tail, head]) => {
    const maps = turn(map), from = turn([x, y]), to = turn([x2, y2]);
    const a = [maps[0](from[0]), maps[1](from[1])], b = [maps[0](to[0]), maps[1](to[1])];
    const ahead = !bend && from[0] === to[0];
    const enter = (spot, old, point) => {
      point[0] = spot.middle + (spot.opened ? spot.node.ports[wire] : old[0] - spot.oldMiddle);
      if (Math.abs(old[1] - spot.oldEnd) < .5) point[1] = spot.end;
      else if (Math.abs(old[1] - spot.oldStart) < .5) point[1] = spot.start;
    };
    if (tail >= 0) { enter(spots[tail], from, a); if (ahead) b[0] = a[0]; }
    if (head >= 0) { enter(spots[head], to, b); if (ahead) a[0] = b[0]; }
    const arrow = head >= 0 && !spots[head].opened && (bend || ahead);
    return {wire, a: turn(a), b: turn(b), bend, arrow};
  });
  size = [map[0](plate.w), map[1](plate.h)];
  return {spots, lines};
}

// -- drawing ----------------------------------------------------------------------------------------------------

function drawLine(parent, line) {
  const [x, y] = line.a, [X, Y] = line.b;
  let path = `M${x} ${y}L${X} ${Y}`;
  if (line.bend && sideways && y !== Y) path = `M${x} ${y}C${(x + X) / 2} ${y} ${(x + X) / 2} ${Y} ${X} ${Y}`;
  if (line.bend && !sideways && x !== X) path = `M${x} ${y}C${x} ${(y + Y) / 2} ${X} ${(y + Y) / 2} ${X} ${Y}`;
  const made = el('path', {d: path, class: 'wire w' + line.wire}, parent);
  if (line.arrow) made.setAttribute('marker-end', 'url(#head)');
  const wire = D.wires[line.wire];
  el('title', {}, made).textContent = wire[0] + ' ' + wire[1];
}

function drawLabels(parent, node, dx, dy) {
  for (const [text, x, y, w, h, wire] of node.labels) {
    if (D.wires[wire][2]) {
      const body = node.b, middle = sideways ? y + h / 2 : x + w / 2, r = node.r;
      const ends = {TB: [middle, body[1] + body[3], middle, r[1] + r[3]], BT: [middle, body[1], middle, r[1]],
        LR: [body[0] + body[2], middle, r[0] + r[2], middle], RL: [body[0], middle, r[0], middle]}[D.dir];
      const path = `M${ends[0] + dx} ${ends[1] + dy}L${ends[2] + dx} ${ends[3] + dy}`;
      el('path', {d: path, class: 'wire w' + wire}, parent);
    }
    if (!text) continue;
    el('rect', {x: x + dx, y: y + dy + 1, width: w, height: h - 2, rx: 3, class: 'label'}, parent);
    const made = el('text', {x: x + dx + w / 2, y: y + dy + 11, class: 'shape', 'text-anchor': 'middle'}, parent);
    made.textContent = text;
    el('title', {}, made).textContent = D.wires[wire][0] + ' ' + D.wires[wire][1];
  }
}

function drawNode(parent, node, dx, dy) {
  drawLabels(parent, node, dx, dy);
  const x = node.b[0] + dx, y = node.b[1] + dy, w = node.b[2], h = node.b[3], folded = node.box < 0;
  const group = el('g', {class: folded ? 'block' : 'box k' + node.kind, tabindex: 0, role: 'button'}, parent);
  el('rect', {x, y, width: w, height: h, rx: 4, class: 'body'}, group);
  if (folded) el('rect', {x: x + 3, y: y + 3, width: w - 6, height: h - 6, rx: 3, class: 'inner'}, group);
  let at = y + 14.5;
  for (const [text, fontSize, bold, mark, layer] of node.lines) {
    const row = el('g', {class: layer >= 0 ? 'row' : ''}, group);
    if (mark >= 0) el('rect', {x: x + 9, y: at - 8, width: 7, height: 7, rx: 1.5, class: 'mark k' + mark}, row);
    const left = x + 9 + (mark >= 0 ? 10 : 0);
    const made = el('text', {x: left, y: at, 'font-size': fontSize, class: bold ? 'name' : 'more'}, row);
    made.textContent = text;
    if (layer >= 0) {
      placed[layer] = {group, x: x + w / 2, y: y + h / 2};
      row.addEventListener('click', (event) => { if (!moved) { choose(layer); event.stopPropagation(); } });
    }
    at += 14;
  }
  const act = () => folded ? toggle(node.block) : choose(node.lines[0][4]);
  el('title', {}, group).textContent = folded ? 'open ' + D.blocks[node.block].title : D.layers[node.lines[0][4]].name;
  group.addEventListener('click', () => { if (!moved) act(); });
  group.addEventListener('keydown', (event) => { if (event.key === 'Enter') act(); });
}

function drawInside(parent, spot) {
  const {node, x, y} = spot, inside = D.insides[node.block];
  const group = el('g', {class: 'open'}, parent);
  el('rect', {x, y, width: inside.w, height: inside.h, rx: 8, class: 'frame'}, group);
  for (const [wire, x1, y1, x2, y2, bend, , head] of inside.lines)
    drawLine(group, {wire, a: [x1 + x, y1 + y], b: [x2 + x, y2 + y], bend, arrow: head >= 0 && bend});
  for (const each of inside.nodes) drawNode(group, each, x, y);
  const title = el('g', {class: 'fold', tabindex: 0, role: 'button'}, group);
  const top = D.dir === 'BT' ? y + inside.h - 21 : y + 3;
  const behind = el('rect', {x: x + 4, y: top, height: 18, rx: 3, class: 'label'}, title);
  const words = el('text', {x: x + 10, y: top + 13, class: 'title'}, title);
  words.textContent = '\u2212 ' + D.blocks[node.block].title;
  behind.setAttribute('width', words.getComputedTextLength() + 12);
  el('title', {}, title).textContent = 'fold';
  title.addEventListener('click', () => { if (!moved) toggle(node.block); });
  title.addEventListener('keydown', (event) => { if (event.key === 'Enter') toggle(node.block); });
}

function redraw() {
  scene.replaceChildren();
  placed = {};
  const {spots, lines} = arranged();
  for (const line of lines) drawLine(scene, line);
  for (const spot of spots) {
    if (spot.opened) drawInside(scene, spot);
    else drawNode(scene, spot.node, spot.x - spot.node.r[0], spot.y - spot.node.r[1]);
  }
  mark();
  return spots;
}

function toggle(block) {
  const corner = (spots) => {
    const spot = spots.find((each) => each.node.block === block);
    return turn([spot.middle, spot.start]);
  };
  const before = corner(arranged().spots);
  if (!open.delete(block)) open.add(block);
  const after = corner(redraw());
  view.x += (before[0] - after[0]) * view.k;
  view.y += (before[1] - after[1]) * view.k;
  move();
}

// -- looking around ---------------------------------------------------------------------------------------------

let moved = false;
function move() { scene.setAttribute('transform', `translate(${view.x} ${view.y}) scale(${view.k})`); }
function zoom(factor, x, y) {
  const k = Math.min(4, Math.max(.04, view.k * factor));
  view.x = x - (x - view.x) * k / view.k;
  view.y = y - (y - view.y) * k / view.k;
  view.k = k;
  move();
}
function fit() {
  const w = svg.clientWidth, h = svg.clientHeight;
  view.k = Math.min(1.25, (w - 40) / size[0], (h - 40) / size[1]);
  view.x = (w - size[0] * view.k) / 2;
  view.y = Math.max(20, (h - size[1] * view.k) / 2);
  move();
}
const middle = (factor) => zoom(factor, svg.clientWidth / 2, svg.clientHeight / 2);
svg.addEventListener('wheel', (event) => {
  event.preventDefault();
  const area = svg.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? .05 : .0015)), event.clientX - area.left, event.clientY - area.top);
}, {passive: false});
svg.addEventListener('pointerdown', (event) => {
  moved = false;
  const begin = [event.clientX, event.clientY, view.x, view.y];
  const drag = (now) => {
    if (Math.hypot(now.clientX - begin[0], now.clientY - begin[1]) > 4) moved = true;
    if (moved) { view.x = begin[2] + now.clientX - begin[0]; view.y = begin[3] + now.clientY - begin[1]; move(); }
  };
  const end = () => { removeEventListener('pointermove', drag); removeEventListener('pointerup', end); };
  addEventListener('pointermove', drag);
  addEventListener('pointerup', end);
});

// -- layers -----------------------------------------------------------------------------------------------------

function mark() {
  scene.querySelectorAll('.chosen').forEach((each) => each.classList.remove('chosen'));
  if (chosen < 0) return;
  if (placed[chosen]) placed[chosen].group.classList.add('chosen');
  const wires = D.layers[chosen].wires.flatMap((wire) => [...scene.querySelectorAll('.w' + wire)]);
  wires.forEach((each) => each.classList.add('chosen'));
}

function choose(layer) {
  chosen = layer;
  mark();
  document.querySelectorAll('#layers .chosen').forEach((each) => each.classList.remove('chosen'));
  if (layer >= 0) rows[layer].classList.add('chosen');
  const about = byId('about');
  about.replaceChildren();
  about.hidden = layer < 0;
  if (layer < 0) return;
  const it = D.layers[layer], close = tag('button', '\u00d7', about, 'close');
  close.title = 'close';
  close.onclick = () => choose(-1);
  tag('h2', it.name, about);
  tag('p', (it.type + ' ' + it.detail).trim(), about, 'more');
  if (it.place) {
    const line = tag('p', '', about), link = tag(it.href ? 'a' : 'span', it.place, line);
    if (it.href) link.href = it.href;
  }
  const table = tag('table', '', about);
  const fact = (what, value) => { const row = tag('tr', '', table); tag('th', what, row); tag('td', value, row); };
  it.bottoms.forEach(([name, shape]) => fact('reads', name + (shape && '  ' + shape)));
  it.tops.forEach(([name, shape]) => fact('makes', name + (shape && '  ' + shape)));
  if (it.parameters) fact('parameters', it.parameters.toLocaleString('en'));
  if (it.shared) fact('shared parameters', it.shared.toLocaleString('en'));
  if (it.macs) fact('multiply-accumulates', it.macs.toLocaleString('en'));
  tag('pre', it.source, about);
}

function visit(layer) {
  const block = D.layers[layer].block;
  if (block >= 0 && !open.has(block)) { open.add(block); redraw(); }
  const at = placed[layer];
  view.k = Math.max(view.k, .85);
  view.x = svg.clientWidth / 2 - at.x * view.k;
  view.y = svg.clientHeight * .45 - at.y * view.k;
  move();
  choose(layer);
  rows[layer].scrollIntoView({block: 'nearest'});
}

const rows = [];
function list() {
  const parent = byId('layers');
  let block = -1;
  D.layers.forEach((layer, number) => {
    if (layer.block !== block && layer.block >= 0) {
      const head = tag('div', D.blocks[layer.block].title, parent, 'head'), its = layer.block;
      head.title = 'open or fold';
      head.onclick = () => toggle(its);
    }
    block = layer.block;
    const row = tag('div', '', parent, 'layer' + (block >= 0 ? ' within' : ''));
    tag('i', '', row, 'k' + layer.kind);
    tag('span', layer.name, row, 'n').title = layer.name + ' (' + layer.type + ')';
    tag('span', layer.tops.map((top) => top[1]).filter(Boolean).join(', '), row, 's');
    row.onclick = () => visit(number);
    rows.push(row);
  });
}

function search() {
  const words = byId('search').value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0, first = -1;
  D.layers.forEach((layer, number) => {
    const text = [layer.name, layer.type, ...layer.bottoms.flat(), ...layer.tops.flat()].join(' ').toLowerCase();
    const fits = words.every((word) => text.includes(word));
    rows[number].hidden = !fits;
    if (fits && first < 0) first = number;
    found += fits;
  });
  document.querySelectorAll('#layers .head').forEach((head) => { head.hidden = words.length > 0; });
  byId('found').textContent = words.length ? `${found} of ${D.layers.length} layers` : '';
  return first;
}

byId('search').addEventListener('input', search);
byId('search').addEventListener('keydown', (event) => {
  const first = search();
  if (event.key === 'Enter' && first >= 0) visit(first);
});
byId('in').onclick = () => middle(1.3);
byId('out').onclick = () => middle(1 / 1.3);
byId('fit').onclick = fit;
byId('fold').onclick = () => { open.clear(); redraw(); fit(); };
byId('open').onclick = () => { D.blocks.forEach((_, block) => open.add(block)); redraw(); fit(); };
byId('fold').hidden = byId('open').hidden = !D.blocks.length;
addEventListener('keydown', (event) => {
  if (event.target.id === 'search') { if (event.key === 'Escape') event.target.blur(); return; }
  const act = {'+': () => middle(1.3), '-': () => middle(1 / 1.3), '0': fit, 'Escape': () => choose(-1),
    '/': () => byId('search').focus()}[event.key];
  if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
});
addEventListener('resize', move);

scene = el('g', {}, svg);
list();
let words = location.hash.slice(1);
try { words = decodeURIComponent(words); } catch { /* not encoded */ }
const wanted = D.layers.findIndex((layer) => 'layer=' + layer.name === words);
if (words === 'open') D.blocks.forEach((_, block) => open.add(block));
redraw();
fit();
if (wanted >= 0) visit(wanted);
"""
