"use strict";
(() => {
  // A row: model, run, family, parameters, date, then a cell for each column:
  // [value, low, high, rank, of, rank from, rank to, swaps, way, why it isn't ranked] or null.
  const board = JSON.parse(document.getElementById("data").textContent);
  const FACTS = 5;
  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const text = (value, type) => (type === "display" ? escaped(value) : value);
  const size = (value, type) => {
    if (type !== "display") {
      return value === null ? -1 : value;
    }
    const unit = [[1e12, "T"], [1e9, "B"], [1e6, "M"]].find(([least]) => value >= least);
    return value === null ? "" : unit ? `${+(value / unit[0]).toPrecision(3)}${unit[1]}` : String(value);
  };
  const shown = (column) => (cell, type) => {
    if (type !== "display") {
      return cell === null ? (type === "sort" || type === "type" ? -Infinity : "") : cell[0];
    }
    if (cell === null) {
      return "";
    }
    const number = (value) => value.toFixed(column.digits).replace("-", "−");
    const interval = cell[1] === null || cell[2] === null ? "" : ` [${number(cell[1])}, ${number(cell[2])}]`;
    const value = number(cell[0]) + interval;
    if (cell[3] === null) {
      return `${value}<span class="rank">not ranked: ${escaped(cell[9] || "not defined")}</span>`;
    }
    const range = cell[5] === null ? "" : ` [${cell[5]}–${cell[6]}]`;
    const swaps = cell[7] === null ? "" : `, swaps ${Math.round(100 * cell[7])}%`;
    return `${value}<span class="rank" title="${escaped(board.ways[cell[8]])}">rank ${cell[3]}${range} of ${cell[4]}${swaps}</span>`;
  };
  const columns = [
    { title: "model", render: text },
    { title: "run", render: text },
    { title: "family", render: text },
    { title: "size", render: size, className: "n" },
    { title: "date", render: text },
    ...board.columns.map((column) => ({ title: escaped(column.shown), render: shown(column), type: "num", className: "n", orderSequence: ["desc", "asc"] })),
  ];
  const of = (id) => document.getElementById(id);
  const offer = (id, values) => {
    for (const value of [...new Set(values)].filter(Boolean).sort()) {
      of(id).append(new Option(value, value));
    }
    of(id).parentElement.hidden = of(id).options.length < 3;
  };
  offer("family", board.rows.map((row) => row[2]));
  offer("language", board.columns.map((column) => column.language));
  for (const [at, way] of board.ways.entries()) {
    of("way").append(new Option(way, at));
  }
  of("way").parentElement.hidden = board.ways.length < 2;

  const table = new DataTable("#board", {
    data: board.rows,
    columns: columns.map((column, at) => ({ ...column, data: at })),
    deferRender: true,
    autoWidth: false,
    order: [[FACTS, "desc"]],
    pageLength: 50,
    paging: board.rows.length > 50,
    layout: { topStart: "search", topEnd: board.rows.length > 50 ? "pageLength" : null, bottomStart: "info", bottomEnd: board.rows.length > 50 ? "paging" : null },
  });

  function fits(row) {
    const [family, size, way, from, to] = ["family", "size", "way", "from", "to"].map((id) => of(id).value);
    const [least, most] = size.split(",").map(Number);
    const sized = !size || (size === "unknown" ? row[3] === null : row[3] !== null && row[3] >= least && row[3] < most);
    const asked = !way || row.slice(FACTS).some((cell) => cell && cell[8] === Number(way));
    const language = of("language").value;
    const spoken = !language || board.columns.some((column, at) => column.language === language && row[FACTS + at]);
    const dated = (!from || row[4] >= from) && (!to || (row[4] && row[4] <= to));
    return (!family || row[2] === family) && sized && asked && spoken && dated;
  }
  table.search.fixed("facts", (_, __, index) => fits(board.rows[index]));
  document.querySelector(".filters").addEventListener("input", () => {
    const language = of("language").value;
    board.columns.forEach((column, at) => table.column(FACTS + at).visible(!language || column.language === language, false));
    table.draw();
  });
  document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
  table.draw();
})();
